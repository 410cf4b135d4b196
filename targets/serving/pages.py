"""The README of a package: what lies in it, how a server starts with it, how to see that it answers right."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType

from convertkit.targets.serving.backends import PLAN_FOLDER, TENSORRT, VERSION
from convertkit.targets.serving.configuration import Serving
from convertkit.targets.serving.containers import TENSORFLOW_TRITON_IMAGE


def triton_page(
    serving: Serving, why_no_batch: str, has_golden: bool, dynamic: Mapping[str, bool] = MappingProxyType({})
) -> str:
    """For a Triton model repository; ``why_no_batch`` is empty where requests can be put together.

    ``dynamic`` are the names of dynamic dimensions, the batch first, and whether the plan's package has their sizes.
    """
    merged = (
        f"Up to {serving.max_batch} requests go into one call; that two samples in a call do not change each other's\n"
        "answers was measured when this was made."
    )
    alone = f"Requests are not put into one call: {why_no_batch or _NOT_ASKED[serving.backend.pads]}."
    backend = serving.backend
    return f"""# {serving.name} for Triton Inference Server

| file | what |
|---|---|
| `repository/{serving.name}/config.pbtxt` | names, types and sizes of inputs and outputs; batches; a first call |
{_model_row(serving)}
{"| `golden/` | a request and what the server has to answer |" if has_golden else ""}
| `Containerfile` | a server with this model |

{merged if serving.max_batch else alone}
{_before(serving, dynamic)}{_ABOUT.get(backend.name, "")}
    tritonserver --model-repository=repository --disable-auto-complete-config
{_asking(serving.name, has_golden)}"""


_NOT_ASKED = {
    False: "it was asked for",
    True: "the backend would fill each call up to the most samples,\nwhich `--triton-openvino-max-batch N` asks for",
}
_ABOUT = {
    "openvino": """
The backend names no precision to OpenVINO, which computes float in bfloat16 on CPUs that have it. Answers are then as
near as eight bits are; the golden answer is that of float32.
""",
    "tensorflow": f"""
Triton's images have had no TensorFlow backend since 25.02: the server is `{TENSORFLOW_TRITON_IMAGE}`.
""",
}


def _model_row(serving: Serving) -> str:
    place = f"repository/{serving.name}/{VERSION}/{serving.backend.file}"
    if serving.backend.name == TENSORRT.name:
        folder = f"repository/{serving.name}/{PLAN_FOLDER}/"
        return f"| `{folder}` | what `{place}` is built from, where the GPU is: the plan is not here yet |"
    return f"| `{place}` | the model, for the `{serving.backend.name}` backend |"


def _before(serving: Serving, dynamic: Mapping[str, bool]) -> str:
    """What builds the plan, where there is one: sizes are those that the configuration lets through."""
    if serving.backend.name != TENSORRT.name:
        return ""
    most, batch = serving.max_batch, next(iter(dynamic), "") if serving.max_batch else ""
    asked = [name for name, is_known in dynamic.items() if name == batch or not is_known]
    sizes = [f"{name}=1,{most},{most}" if name == batch else f"{name}=MIN,OPT,MAX" for name in asked]
    words = "".join(f" --size {shlex.quote(each)}" for each in sizes)
    model = f"repository/{serving.name}"
    place = f"{model}/{VERSION}"
    return f"""
First build the plan, with the release of TensorRT that the server has (NVIDIA's image `nvcr.io/nvidia/tensorrt` of the
same release) and on a GPU of the kind that will run it:

    mkdir -p {place}
    python {model}/{PLAN_FOLDER}/build_engine.py --engine {place}/{serving.backend.file}{words}

`{model}/{PLAN_FOLDER}/README.md` says what the script needs and how the plan is checked.
"""


def _asking(name: str, has_golden: bool) -> str:
    if not has_golden:
        return ""
    return f"""
Ask it, and compare the answer's `data` with that of `golden/response.json`:

    curl --data @golden/request.json localhost:8000/v2/models/{name}/infer
"""


def kserve_page(name: str, storage_uri: str) -> str:
    """For a Triton repository that KServe deploys."""
    return f"""# {name} for KServe

| file | what |
|---|---|
| `inferenceservice.yaml` | the resource, for KServe's Triton runtime and version 2 of the protocol |
| `repository/` | the model repository: copy what is in it to `{storage_uri}` |
| `golden/` | a request and what the service has to answer, where the protocol has JSON for its types |

    kubectl apply --filename inferenceservice.yaml
    curl --data @golden/request.json --header "Host: HOST" INGRESS/v2/models/{name}/infer
"""


def torchserve_page(name: str) -> str:
    """For a model archive."""
    return f"""# {name} for TorchServe

| file | what |
|---|---|
| `model-store/{name}.mar` | the model, and a handler that runs it in ONNX Runtime |
| `config.properties` | addresses, the model to load |
| `golden/` | a request and what the server has to answer |
| `Containerfile` | a server with this model |

    torchserve --start --disable-token-auth --ts-config config.properties
    curl --header "Content-Type: application/json" --data @golden/request.json localhost:8080/predictions/{name}

Requests and answers are the JSON of the Open Inference Protocol, version 2.
"""


def bentoml_page(name: str) -> str:
    """For the folder of a service."""
    return f"""# {name} for BentoML

| file | what |
|---|---|
| `service/service.py` | the service, and `bentofile.yaml` for `bentoml build` |
| `service/onnx_model.py` | runs the model in ONNX Runtime |
| `service/model.onnx` | the model |
| `golden/` | a request and what the server has to answer |
| `Containerfile` | a server with this model |

    pip install bentoml numpy onnxruntime
    bentoml serve service:Model --working-dir service --port 3000
    curl --header "Content-Type: application/json" --data @golden/request.json localhost:3000/v2/models/{name}/infer

Requests and answers are the JSON of the Open Inference Protocol, version 2.
"""
