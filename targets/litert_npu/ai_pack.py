"""An AI pack of Google Play: each device gets the file for its chip, and every other device the one for all.

Source: Google Play, "Play for On-device AI", device targeting, and ``aot/ai_pack/export_lib.py`` of ai-edge-litert
2.3.0, which names the groups and the chips.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from convertkit.targets.litert_npu.chips import Chip

FOLDER, PACK = "ai_pack", "model_pack"
_OTHER = "other"
_BUILD = f"""plugins {{
    id("com.android.ai-pack")
}}

aiPack {{
    packName = "{PACK}"
    dynamicDelivery {{
        deliveryType = "install-time"
    }}
}}
"""


def write_pack(folder: Path, files: Mapping[str, tuple[Chip, Path]], fallback: Path) -> None:
    """Write ``ai_pack`` in ``folder``: the module, and which chips are in which group."""
    pack = folder / FOLDER
    groups = {chip.group: path for chip, path in files.values()} | {_OTHER: fallback}
    for group, path in groups.items():
        place = pack / PACK / "src/main/assets" / f"model#group_{group}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place / "model.tflite")
    (pack / PACK / "build.gradle.kts").write_text(_BUILD, encoding="utf-8")
    told = targeting(chip for chip, _ in files.values())
    (pack / "device_targeting_configuration.xml").write_text(told, encoding="utf-8")


def targeting(chips: Iterable[Chip]) -> str:
    """``device_targeting_configuration.xml``."""
    groups = "".join(
        f'    <config:device-group name="{chip.group}">\n'
        + "".join(
            "        <config:device-selector>\n"
            f'            <config:system-on-chip manufacturer="{name}" model="{chip.model.replace("_", " ")}"/>\n'
            "        </config:device-selector>\n"
            for name in chip.vendor.played
        )
        + "    </config:device-group>\n"
        for chip in chips
    )
    return (
        '<config:device-targeting-config\n    xmlns:config="http://schemas.android.com/apk/config">\n'
        f"{groups}</config:device-targeting-config>\n"
    )
