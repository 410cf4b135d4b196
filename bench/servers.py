"""Servers answer the golden request of a package: started, asked, compared, stopped.

    python bench/servers.py OUT --bentoml ENV --torchserve ENV --triton ENV --kserve ENV [--model FILE] [--calib FILE]

ENV is a virtual environment with that server and onnxruntime in it (bench/peers/README.md); a server without one is
left out.  Prints a row of docs/how-to/model-servers.md for each server and precision: how far the answer is from the
golden response, and the median time of a request through HTTP.  The exit code is 1 where an answer differs by more than
--most, or a server does not answer.

Triton is the one that nvidia-pytriton carries.  It has no ONNX Runtime backend, so its Python backend runs the model
(peers/triton_model.py); all else of ``config.pbtxt`` is the package's: names, types, batches, the warm-up.  KServe's
server in Python takes the place of Triton in the same way (peers/kserve_model.py): what it shows is the protocol.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(__file__).resolve().parent / "peers"
DIGITS = ROOT / "fixtures" / "digits"
PATIENCE_S = 180.0
REQUESTS = 50
Answer = dict[str, np.ndarray]


@dataclass(frozen=True)
class Server:
    """How a package is started from its folder, and where it is asked; ``{name}`` is the model's name."""

    package: str
    command: tuple[str, ...]
    url: str

    @property
    def naming(self) -> tuple[str, ...]:
        """How the model is named; KServe's package has no such option."""
        return () if self.package == "kserve" else (f"--{self.package}-name", "golden")

    def asked_at(self, package: Path) -> str:
        """The address of the model that lies in the package."""
        if self.package != "kserve":
            return self.url.format(name="golden")
        (folder,) = (each for each in (package / "repository").iterdir() if each.is_dir())
        return self.url.format(name=folder.name)

    def prepared(self, package: Path, environment: Path) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command, and what it finds in the environment's variables."""
        if self.package != "triton":
            return self.command, {"BENTOML_DO_NOT_TRACK": "1"}
        (site,) = (environment / "lib").glob("python3*/site-packages")
        triton = site / "pytriton" / "tritonserver"
        config = package / "repository" / "golden" / "config.pbtxt"
        config.write_text(config.read_text().replace('backend: "onnxruntime"', 'backend: "python"'))
        shutil.copyfile(PEERS / "triton_model.py", config.parent / "1" / "model.py")
        python = site.parent.name.removeprefix("python")
        stub = triton / "python_backend_stubs" / python / "triton_python_backend_stub"
        binary, placed = triton / "bin" / "tritonserver", triton / "backends" / "python" / stub.name
        shutil.copyfile(stub, placed)
        for each in (binary, placed):  # they find their libraries beside themselves
            each.chmod(0o755)
        variables = {"TRITON_SITE_PACKAGES": str(site)}
        return (str(binary), *self.command[1:], f"--backend-directory={triton / 'backends'}"), variables


SERVERS = (
    Server(
        "bentoml",
        ("bentoml", "serve", "service:Model", "--working-dir", "service", "--port", "3000"),
        "http://localhost:3000/v2/models/{name}/infer",
    ),
    Server(
        "torchserve",
        ("torchserve", "--start", "--foreground", "--disable-token-auth", "--ts-config", "config.properties"),
        "http://localhost:8080/predictions/{name}",
    ),
    Server(
        "triton",
        ("tritonserver", "--model-repository=repository", "--disable-auto-complete-config"),
        "http://localhost:8000/v2/models/{name}/infer",
    ),
    Server(
        "kserve",
        ("python", str(PEERS / "kserve_model.py"), "repository"),
        "http://localhost:8085/v2/models/{name}/infer",
    ),
)


def exported(server: Server, model: Path, words: list[str], out: Path) -> Path:
    """The package of ``model``, made once."""
    if not out.exists():
        command = [sys.executable, "-m", "convertkit", "export", str(model), "--package", server.package, *words]
        subprocess.run([*command, *server.naming, "-o", str(out)], check=True, cwd=ROOT)
    return out


@contextmanager
def started(server: Server, environment: Path, package: Path) -> Iterator[None]:
    """The server, in a process group of its own, whose end is waited for."""
    command, variables = server.prepared(package, environment)
    found = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}", **variables}
    log = package.with_name(f"{package.name}.log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=package, env=found, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def asked(url: str, request: bytes) -> Answer:
    """The answer's outputs by name."""
    message = urllib.request.Request(url, request, {"Content-Type": "application/json"})
    with urllib.request.urlopen(message, timeout=60) as reply:
        return outputs(json.load(reply))


def outputs(answer: dict[str, list[dict[str, object]]]) -> Answer:
    """Arrays by name; servers write a float32 with more digits than it has."""
    return {
        str(each["name"]): np.array(each["data"], np.float32 if each["datatype"] == "FP32" else None).reshape(
            each["shape"]
        )
        for each in answer["outputs"]
    }


def first_answer(url: str, request: bytes) -> Answer:
    """Asks until the server answers."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return asked(url, request)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def difference(got: Answer, wanted: Answer) -> float:
    """The largest, over all outputs; infinite where names or shapes differ."""
    if {name: each.shape for name, each in got.items()} != {name: each.shape for name, each in wanted.items()}:
        return float("inf")
    return max(float(np.abs(got[name] - each).max(initial=0)) for name, each in wanted.items())


def row(server: Server, environment: Path, package: Path) -> tuple[str, float]:
    """What a server did, in the words of a table, and how far its answer is from the golden one."""
    request = (package / "golden" / "request.json").read_bytes()
    wanted = outputs(json.loads((package / "golden" / "response.json").read_text()))
    url = server.asked_at(package)
    with started(server, environment, package):
        apart = difference(first_answer(url, request), wanted)
        times = []
        for _ in range(REQUESTS):
            begin = time.perf_counter()
            apart = max(apart, difference(asked(url, request), wanted))
            times.append(1e3 * (time.perf_counter() - begin))
    same = "equal" if apart == 0 else f"{apart:.1e}"
    return f"{same} | {statistics.median(times):.1f} ms", apart


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for server in SERVERS:
        parser.add_argument(f"--{server.package}", type=Path, metavar="ENV")
    parser.add_argument("--model", type=Path, default=DIGITS / "model.pt")
    parser.add_argument("--calib", type=Path, default=DIGITS / "calib.npz")
    parser.add_argument("--most", type=float, default=1e-5, help="largest difference from the golden response [1e-5]")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out, worst = options.out.resolve(), 0.0
    print("| server | model | answer beside the golden one | a request |\n|---|---|---|---|")
    for server in SERVERS:
        environment = getattr(options, server.package)
        if environment is None:
            continue
        for precision, words in (("float32", []), ("int8", ["--int8", "--calib", str(options.calib.resolve())])):
            package = exported(server, options.model.resolve(), words, out / f"{server.package}-{precision}")
            told, apart = row(server, environment.resolve(), package)
            print(f"| {server.package} | {options.model.stem}, {precision} | {told} |", flush=True)
            worst = max(worst, apart)
    return 0 if worst <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
