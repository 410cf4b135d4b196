"""The AAR: assets with the model, and what Android's build tools look for beside them."""

from __future__ import annotations

from collections.abc import Mapping, Set

from convertkit.targets.android.archive import archive

ASSETS = "assets/"
_METADATA = "META-INF/com/android/build/gradle/aar-metadata.properties"
_METADATA_TEXT = b"aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=1\n"


def aar(package: str, min_sdk: int, rules: str, assets: Mapping[str, bytes], stored: Set[str]) -> bytes:
    """An AAR without code whose namespace is ``package``; assets that ``stored`` names lie in it as they are.

    Source of the layout: Android developers, "Create an Android library", anatomy of an AAR file.
    """
    files = {f"{ASSETS}{name}": data for name, data in assets.items()}
    members = {
        "AndroidManifest.xml": _manifest(package, min_sdk).encode(),
        "R.txt": b"",
        "classes.jar": archive({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n"}),
        "proguard.txt": rules.encode(),
        _METADATA: _METADATA_TEXT,
        **files,
    }
    return archive(members, stored={f"{ASSETS}{name}" for name in stored})


def _manifest(package: str, min_sdk: int) -> str:
    return f"""<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android"
    package="{package}">

    <uses-sdk android:minSdkVersion="{min_sdk}" />

</manifest>
"""
