"""Run the model of a package for iOS, read back from its resources, in the runtime that the package depends on."""

from __future__ import annotations

from convertkit.artifact import Artifact
from convertkit.targets.ios.checks import packaged_model
from convertkit.targets.mobile.running import PackagedRunner


class IosRunner(PackagedRunner):
    """Executes what an app gets, not the file that it was made of."""

    def model(self, artifact: Artifact) -> bytes:
        return packaged_model(artifact.path)
