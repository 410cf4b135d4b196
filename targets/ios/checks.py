"""Whether a finished package for iOS is whole, and the model in it."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from pathlib import Path
from xml.parsers.expat import ExpatError

from convertkit.errors import SourceError, ToolError
from convertkit.targets.ios.runtimes import RUNTIMES
from convertkit.targets.mobile.deflated import DEFLATED, inflated

PRIVACY = "PrivacyInfo.xcprivacy"
PRIVACY_CONTENT: Mapping[str, object] = {
    "NSPrivacyTracking": False,
    "NSPrivacyTrackingDomains": [],
    "NSPrivacyCollectedDataTypes": [],
    "NSPrivacyAccessedAPITypes": [],
}
"""The generated code tracks nobody, collects nothing, and calls none of the interfaces that need a reason.
Source: Apple, "Privacy manifest files"."""
_SUFFIXES = tuple(f"{each.suffix}{packed}" for each in RUNTIMES.values() for packed in ("", DEFLATED))


def packaged_resource(package: Path) -> Path:
    """The model among the resources of a package; ``SourceError`` where there is not one."""
    found = [path for path in sorted(package.glob("Sources/*/Resources/*")) if path.name.endswith(_SUFFIXES)]
    if len(found) != 1:
        raise SourceError(f"{package.name} has {len(found)} models among its resources, expected one")
    return found[0]


def packaged_model(package: Path) -> bytes:
    """The model's file among the resources of a package, decoded; ``SourceError`` where there is not one."""
    path = packaged_resource(package)
    data = path.read_bytes()
    return inflated(data, f"{package.name}: {path.name}") if path.suffix == DEFLATED else data


def check_package(package: Path, resources: tuple[str, ...]) -> None:
    """``ToolError`` for resources that are missing or not listed, and for a privacy manifest of other content."""
    (folder,) = package.glob("Sources/*/Resources")
    found = sorted(path.name for path in folder.iterdir())
    if found != sorted(resources):
        raise ToolError(f"the package has the resources {', '.join(found)}, and lists {', '.join(sorted(resources))}")
    try:
        content = plistlib.loads((folder / PRIVACY).read_bytes())
    except (plistlib.InvalidFileException, ExpatError, ValueError) as error:
        raise ToolError(f"{PRIVACY} is not a property list: {error}") from error
    if content != PRIVACY_CONTENT:
        raise ToolError(f"{PRIVACY} says {content}")
