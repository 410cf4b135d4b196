"""The package's README: what lies in it, how an app takes it, what it was verified with."""

from __future__ import annotations

from convertkit.targets.ios.swift import SwiftApi
from convertkit.targets.mobile.reduced import section


def readme(api: SwiftApi, vectors: int) -> str:
    """Markdown."""
    name, library = api.module.text, api.runtime.library
    ins = "\n".join(f"- {port.sentence}" for port in api.typed.ports.given)
    outs = "\n".join(f"- {port.sentence}" for port in api.typed.ports.returned)
    given = ", ".join(f"{port.variable}: {port.variable}" for port in api.typed.ports.given)
    if library.is_pod:
        kind, use = "pod", f"    pod '{name}', :path => 'PATH/{name}', :testspecs => ['Tests']"
        manifest, test = f"`{name}.podspec`", "run the scheme of the pod's tests in Xcode"
    else:
        kind, use = "Swift package", f'    .package(path: "PATH/{name}")'
        manifest, test = "`Package.swift`", f"run the tests of the scheme {name} in Xcode, or `swift test` on a Mac"
    brings = f"the {kind}, which brings `{library.product}` {library.version}"
    verified = f"{api.runtime.title} on the machine that exported it, which ran the model out of this package"
    if api.features is not None:
        brings = f"the {kind}, for iOS {api.features.ios} and macOS {api.features.macos} or newer; it brings no library"
        verified = "convertkit's evaluator of Core ML's operations, which ran the model out of this package (evaluated)"
    lies = "the model" if api.packed is None else "the model, deflated: the first start decodes it into a file"
    return f"""# {name} for iOS

| where | what it is |
|---|---|
| {manifest} | {brings} |
| `Sources/{name}` | the typed API |
| `Sources/{name}/Resources` | {lies}, and the privacy manifest |
| `Tests/{name}Tests` | a test with {vectors} golden vectors |

## The interface
Inputs:

{ins}

Outputs:

{outs}

## Into an app
{use}

Then, in Swift:

    let model = try {name}()
    let outputs = try await model.runAsync({given})

`run` is the same without concurrency; call it away from the main thread.

## Test on a device
On a Mac, {test}.
{section(api.runtime.suffix, library.product)}
## Verified with
{verified}; `report.html` tells
what it was compared with. The code was not compiled and nothing was run on Apple's hardware.
"""
