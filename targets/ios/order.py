"""In which order the model of a package for iOS has its inputs and outputs."""

from __future__ import annotations

from convertkit.artifact import Artifact
from convertkit.targets.ios.checks import packaged_model, packaged_resource
from convertkit.targets.mobile.order import Names, names_of


def packaged_names(artifact: Artifact) -> Names:
    """Of the model among a package's resources."""
    if packaged_resource(artifact.path).is_dir():
        return by_name(artifact)
    return names_of(packaged_model(artifact.path))


def by_name(artifact: Artifact) -> Names:
    """Core ML finds features by their names, so that any order will do: the artifact's."""
    return tuple(each.name for each in artifact.inputs), tuple(each.name for each in artifact.outputs)
