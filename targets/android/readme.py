"""The package's README: what lies in it, how an app takes it, what it was verified with."""

from __future__ import annotations

from convertkit.targets.android import project
from convertkit.targets.android.kotlin import ARRAYS, Api
from convertkit.targets.android.maven import Coordinates
from convertkit.targets.mobile.reduced import section


def readme(api: Api, made: Coordinates, min_sdk: int, vectors: int) -> str:
    """Markdown."""
    short, name = api.package.short, api.package.kotlin_class
    given = ", ".join(f"{port.variable}: {ARRAYS[port.api]}" for port in api.typed.ports.given)
    ins = "\n".join(f"- {port.sentence}" for port in api.typed.ports.given)
    outs = "\n".join(f"- {port.sentence}" for port in api.typed.ports.returned)
    pack = f"| `project/{short}_pack` | the AI pack, which Google Play delivers with the app |\n" if api.in_pack else ""
    lies = "stored uncompressed" if api.packed is None else "deflated: the first `open` decodes it into a file"
    return f"""# {name} for Android

| where | what it is |
|---|---|
| `{made.file}.aar` | the model as an asset, {lies}; no code |
| `maven` | the same as a Maven repository: `{made}`, which brings `{api.runtime.library}` |
| `project/{short}` | a library module with the typed API, and its instrumented test |
| `project/sample` | an app that runs the model once |
{pack}
## The interface
Inputs:

{ins}

Outputs:

{outs}

## Into an app
The project is an ordinary Gradle build (Gradle {project.GRADLE} or newer, Android API level {min_sdk} or newer):

    cd project && gradle :sample:assembleDebug

In a build of your own, add the repository and the module to `settings.gradle.kts`:

    dependencyResolutionManagement {{ repositories {{ maven {{ url = uri("PATH/maven") }} }} }}
    include(":{short}")
    project(":{short}").projectDir = file("PATH/project/{short}")

Then, in Kotlin or Java, away from the main thread:

    {name}.open(context).use {{ model -> val outputs = model.run({given}) }}

`runAsync` is the same as a suspending function.

## Test on a phone
{vectors} golden vectors come with the module:

    cd project && gradle :{short}:connectedAndroidTest
{section(api.runtime.suffix, str(api.runtime.library))}
## Verified with
{api.runtime.title} on the machine that exported it, which ran the model out of the AAR; `report.html` tells what it was
compared with. Nothing was built with Gradle or run on a phone.
"""
