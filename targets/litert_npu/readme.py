"""The package's README: what lies in it, for which chips, how an app loads it, and what was verified."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.targets.litert_npu.ai_pack import FOLDER, PACK
from convertkit.targets.litert_npu.chips import CHIPS, QUALCOMM
from convertkit.targets.litert_npu.package import BEFORE, FACTS, file_for
from convertkit.targets.qnn.runtime import runtime_name


def readme(compiler: str, socs: Sequence[str], *, ai_pack: bool) -> str:
    """Markdown."""
    files = "".join(f"| `{file_for(soc)}` | for the NPU of {CHIPS[soc].model} |\n" for soc in socs)
    asset = "model/model.tflite" if ai_pack else file_for(socs[0])
    pack = f"| `{FOLDER}` | an AI pack of Google Play with all of them |\n" if ai_pack else ""
    return f"""# Model for NPUs, by LiteRT

| file | what it is |
|---|---|
{files}| `{BEFORE}` | what was compiled: full integers, for every other device |
{pack}| `{FACTS}` | the compiler, the chips, the digests of all files |

Compiled by {compiler}. A file for a chip holds one operator, `DISPATCH_OP`, which hands everything to the NPU.

## In an app
LiteRT's `CompiledModel` with LiteRT's runtime libraries for the chip's NPU, which the app has to hold:

```kotlin
val environment = Environment.create(BuiltinNpuAcceleratorProvider(context))
val options = CompiledModel.Options(Accelerator.NPU)
val model = CompiledModel.create(context.assets, "{asset}", options, environment)
```

`{BEFORE}` is for `CompiledModel.Options(Accelerator.CPU)`, where there is no such NPU.
{_delivery() if ai_pack else ""}
## Verified with
`{BEFORE}` was verified in LiteRT. {_verified(socs)}
"""


def _delivery() -> str:
    return f"""
## The AI pack
Copy `{FOLDER}/{PACK}` beside the app's module, and `{FOLDER}/device_targeting_configuration.xml` into the app's module.
On every device the file is the asset `model/model.tflite`: Google Play takes the group off the folder's name.
In `settings.gradle.kts` write `include(":{PACK}")`, and in the app's `build.gradle.kts`:

```kotlin
android {{
    assetPacks += listOf(":{PACK}")
    bundle {{
        deviceTargetingConfig = file("device_targeting_configuration.xml")
        deviceGroup {{
            enableSplit = true
            defaultGroup = "other"
        }}
    }}
}}
```
"""


def _verified(socs: Sequence[str]) -> str:
    simulated = [soc for soc in socs if CHIPS[soc].vendor is QUALCOMM]
    others = [soc for soc in socs if soc not in simulated]
    told = []
    if simulated:
        told.append(
            f"{runtime_name()}: its simulator of the HTP executed the programs for {', '.join(simulated)}. The numbers "
            "are the simulator's; nothing was run on a device, and there is no latency."
        )
    if others:
        told.append(
            f"The programs for {', '.join(others)} were compiled and not executed: run samples on the device and "
            f"compare them with what `{BEFORE}` gives."
        )
    return "\n\n".join(told)
