"""Model servers: packages around an artifact of another target, which a server runs from the folder as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from convertkit import plugins
from convertkit.errors import Unsupported, UsageError
from convertkit.recipe import ExportOptions
from convertkit.target_options import TargetOption, chosen, flag, values
from convertkit.targets.serving.naming import model_name, name_of, storage_uri

if TYPE_CHECKING:
    from convertkit.artifact import Artifact
    from convertkit.operators import Operator
    from convertkit.profile import QuantProfile
    from convertkit.stage import BuildContext, Stage


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 65536:
        raise ValueError("expected a whole number from 0 to 65536")
    return number


def _at_least_one(text: str) -> int:
    if (number := _count(text)) == 0:
        raise ValueError("expected at least 1")
    return number


_NAME = TargetOption("name", model_name, "The model's name on the server; else the source's", metavar="NAME")
_BESIDE = ("profile", "rtx-sm")
"""TensorRT's options that decide what lies beside its model, which a repository for ONNX Runtime does not have."""
_PRECISIONS = ("float32", "fp16", "int8", "w8", "w4")
_TRITON = (
    _NAME,
    TargetOption("max-batch", _count, "Most samples in one call, 0 for one request a call", metavar="N"),
    TargetOption("delay-us", _count, "How long a request waits for others, in microseconds", 100, "N"),
    TargetOption("instances", _at_least_one, "Copies of the model that run at once", 1, "N"),
)


@dataclass(frozen=True, slots=True)
class TritonTarget:
    """Delivers a model repository around what the target ``packages`` delivers."""

    name: str
    packages: str
    summary: str
    backend: str
    extra: str = "core"
    precisions: tuple[str, ...] = _PRECISIONS
    runs_here: bool = False
    reads: frozenset[str] = frozenset({"--opset"})
    options: tuple[TargetOption, ...] = _TRITON

    def check(self, options: ExportOptions) -> None:
        """Raise ``UsageError`` for what the chosen backend does not use, or does not compute as verified."""
        given = values(self, options)
        if given.get("backend") == "onnxruntime" and self.packages not in options.targets:
            self._check_beside(options)
        if given.get("backend") == "onnxruntime" and options.precision in ("fp8", "bf16"):
            raise UsageError(
                f"--{options.precision} with Triton's onnxruntime backend: ONNX Runtime computes other numbers where "
                f"TensorRT does not take a node\n  try   leave {flag(self.name, 'backend')} out"
            )

    def _check_beside(self, options: ExportOptions) -> None:
        given = chosen(plugins.target(self.packages), options)
        for name in _BESIDE:
            if name in given:
                raise UsageError(f"{flag(self.packages, name)} does nothing for {self.name}, which has the model alone")

    def takes(self, source: str) -> bool:
        """Not where no target is named, for what has to be accepted first."""
        return self.backend != "openvino"

    def profile(self, options: ExportOptions) -> QuantProfile:
        """That of the target whose artifact this is."""
        return plugins.target(self.packages).profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of the packaged target; ``Unsupported`` where bfloat16 has to be accepted first."""
        from convertkit.targets.serving import backends
        from convertkit.targets.serving.model_repository import Asked, PackageTriton

        given, options = context.target_options, context.options
        if self.backend == "openvino" and not given["accept-bfloat16"]:
            accept = f"{flag(self.name, 'accept-bfloat16')}, which accepts it"
            raise Unsupported(
                "Triton's OpenVINO backend computes float in bfloat16 on CPUs that have it, and no configuration turns "
                "that off",
                ways_out=(accept, "--target onnxruntime --package triton"),
            )
        name = given["name"] or name_of(options.source)
        known = {
            "onnxruntime": backends.ONNXRUNTIME if self.packages == "onnxruntime" else backends.ONNXRUNTIME_TENSORRT,
            "tensorrt": backends.TENSORRT,
            "openvino": backends.OPENVINO,
            "tensorflow": backends.TENSORFLOW,
        }
        backend = known[given.get("backend", self.backend)]
        asked = Asked(name, given["max-batch"], given["delay-us"], given["instances"], backend)
        return (PackageTriton(asked, options.seed, context.calibration),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """Those of the packaged model."""
        from convertkit.operators import InspectingTarget
        from convertkit.targets.serving.repository import packaged_model

        packaged = plugins.target(self.packages)
        made = replace(artifact, path=packaged_model(artifact.path))
        return packaged.operators(made) if isinstance(packaged, InspectingTarget) else ()


@dataclass(frozen=True, slots=True)
class KServeTarget:
    """Delivers a Triton repository with the resource by which KServe deploys it."""

    name: str = "kserve"
    packages: str = "triton"
    summary: str = "KServe, InferenceService over a Triton repository"
    extra: str = "core"
    precisions: tuple[str, ...] = _PRECISIONS
    runs_here: bool = False
    reads: frozenset[str] = frozenset({"--opset"})
    options: tuple[TargetOption, ...] = (
        TargetOption("storage-uri", storage_uri, "Where the repository will lie [pvc://models/NAME]", metavar="URI"),
        TargetOption("min-replicas", _count, "Least number of servers", 1, "N"),
        TargetOption("gpu", bool, "Ask for a GPU"),
    )

    def profile(self, options: ExportOptions) -> QuantProfile:
        """That of the target whose artifact this is."""
        return plugins.target(self.packages).profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of Triton."""
        from convertkit.targets.serving.inference_service import PackageKServe

        given = context.target_options
        return (PackageKServe(given["storage-uri"], given["min-replicas"], given["gpu"]),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the packaged model."""
        return triton.operators(artifact)


@dataclass(frozen=True, slots=True)
class TorchServeTarget:
    """Delivers a model archive for TorchServe around what ``onnxruntime`` delivers."""

    name: str = "torchserve"
    packages: str = "onnxruntime"
    summary: str = "TorchServe, model archive that runs ONNX Runtime"
    extra: str = "core"
    precisions: tuple[str, ...] = _PRECISIONS
    runs_here: bool = False
    reads: frozenset[str] = frozenset({"--opset"})
    options: tuple[TargetOption, ...] = (_NAME,)

    def profile(self, options: ExportOptions) -> QuantProfile:
        """That of the target whose artifact this is."""
        return plugins.target(self.packages).profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``onnxruntime``."""
        from convertkit.targets.serving.model_archive import PackageTorchServe

        name = context.target_options["name"] or name_of(context.options.source)
        return (PackageTorchServe(name, context.options.seed, context.calibration),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the packaged model."""
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from convertkit.onnx.inspection import operators
        from convertkit.targets.serving.archive import only_archive, unpacked

        with TemporaryDirectory(prefix="convertkit-") as folder:
            manifest = unpacked(only_archive(artifact.path), Path(folder))
            return operators(Path(folder) / manifest["model"]["serializedFile"])


@dataclass(frozen=True, slots=True)
class BentoTarget:
    """Delivers a BentoML service around what ``onnxruntime`` delivers."""

    name: str = "bentoml"
    packages: str = "onnxruntime"
    summary: str = "BentoML, service that runs ONNX Runtime"
    extra: str = "core"
    precisions: tuple[str, ...] = _PRECISIONS
    runs_here: bool = False
    reads: frozenset[str] = frozenset({"--opset"})
    options: tuple[TargetOption, ...] = (_NAME,)

    def profile(self, options: ExportOptions) -> QuantProfile:
        """That of the target whose artifact this is."""
        return plugins.target(self.packages).profile(options)

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """One step, behind those of ``onnxruntime``."""
        from convertkit.targets.serving.bento import PackageBento

        name = context.target_options["name"] or name_of(context.options.source)
        return (PackageBento(name, context.options.seed, context.calibration),)

    def operators(self, artifact: Artifact) -> tuple[Operator, ...]:
        """The nodes of the packaged model."""
        from convertkit.onnx.inspection import operators

        return operators(artifact.path / "model.onnx")


triton = TritonTarget(
    "triton", "onnxruntime", "Triton Inference Server, model repository for its onnxruntime backend", "onnxruntime"
)
triton_tensorrt = TritonTarget(
    "triton-tensorrt",
    "tensorrt",
    "Triton Inference Server, for a plan of TensorRT that is built from the package",
    "tensorrt",
    precisions=(*_PRECISIONS, "fp8", "bf16"),
    options=(
        *_TRITON,
        TargetOption(
            "backend",
            str,
            "What runs the model: a plan that the package's script builds, or ONNX Runtime with TensorRT",
            default="tensorrt",
            choices=("tensorrt", "onnxruntime"),
        ),
    ),
)
triton_openvino = TritonTarget(
    "triton-openvino",
    "openvino",
    "Triton Inference Server, IR for its openvino backend on CPUs",
    "openvino",
    extra="openvino",
    reads=frozenset(),
    options=(
        *_TRITON,
        TargetOption("accept-bfloat16", bool, "Float is computed in bfloat16 on CPUs that have it"),
    ),
)
triton_tf_serving = TritonTarget(
    "triton-tf-serving",
    "tf-serving",
    "Triton Inference Server up to 25.02, SavedModel for its tensorflow backend",
    "tensorflow",
    extra="tf-serving",
    precisions=("float32",),
    reads=frozenset(),
)
kserve = KServeTarget()
torchserve = TorchServeTarget()
bentoml = BentoTarget()
