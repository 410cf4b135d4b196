"""Run the model of a package for iOS, read back from its resources, in the runtime that the package depends on."""

from __future__ import annotations

from dataclasses import replace

from convertkit.artifact import Artifact
from convertkit.stage import Runner
from convertkit.targets.coreml.runner import CoreMLRunner
from convertkit.targets.ios.checks import packaged_model, packaged_resource
from convertkit.targets.mobile.running import PackagedRunner


class IosRunner(PackagedRunner):
    """Executes what an app gets, not the file that it was made of."""

    def model(self, artifact: Artifact) -> bytes:
        return packaged_model(artifact.path)


class PackagedCoreMLRunner(CoreMLRunner):
    """Evaluates the Core ML package that lies among the resources."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(replace(artifact, path=packaged_resource(artifact.path)))

    @property
    def runtime(self) -> str:
        """What evaluates the model."""
        return f"{super().runtime}, out of the package"


def ios_runner(artifact: Artifact) -> Runner:
    """The runner for what a package carries."""
    return PackagedCoreMLRunner(artifact) if packaged_resource(artifact.path).is_dir() else IosRunner(artifact)
