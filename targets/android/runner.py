"""Run the model of an AAR: read back out of the archive, in the runtime that the phone's library is of."""

from __future__ import annotations

from convertkit.artifact import Artifact
from convertkit.targets.android.checks import packaged_model
from convertkit.targets.mobile.running import PackagedRunner


class AndroidRunner(PackagedRunner):
    """Executes what an app gets, not the file that it was made of."""

    def model(self, artifact: Artifact) -> bytes:
        return packaged_model(artifact.path)
