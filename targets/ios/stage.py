"""A model's file becomes a Swift package, or a pod, with a typed API."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Artifact, files_of, sha256_of
from convertkit.parity.golden import Vector
from convertkit.processing.words import with_ranges
from convertkit.recipe import ExportOptions
from convertkit.stage import EXACT, FeedSource, Stage
from convertkit.targets.ios.checks import PRIVACY, PRIVACY_CONTENT, check_package
from convertkit.targets.ios.coreml import features_of, relative_of
from convertkit.targets.ios.limits import check_limits
from convertkit.targets.ios.names import RESERVED, ModuleName
from convertkit.targets.ios.order import by_name
from convertkit.targets.ios.readme import readme
from convertkit.targets.ios.runner import ios_runner
from convertkit.targets.ios.runtimes import AppleRuntime
from convertkit.targets.ios.swift import SwiftApi, golden_test, sources
from convertkit.targets.mobile.api import TypedApi, Wanted, beginning, check_one_file, typed_api
from convertkit.targets.mobile.deflated import Packed, deflated
from convertkit.targets.mobile.files import write_files
from convertkit.targets.mobile.golden import little, vector_files, vectors, wav
from convertkit.targets.mobile.opsets import check_opset
from convertkit.targets.mobile.order import names_of
from convertkit.targets.mobile.pictures import example_pixels
from convertkit.targets.mobile.reduced import required_by


@dataclass(frozen=True, slots=True)
class IosChoices:
    """The values of the target's own options."""

    module: ModuleName
    runtime: AppleRuntime
    picture: str | None
    sound: str | None


class PackageIos:
    """Packages the file as it is, or deflated; the same numbers come out of the package."""

    name = "ios"
    version = "1"
    produces = "ios"
    tolerance = EXACT

    def __init__(self, options: ExportOptions, calibration: FeedSource | None, choices: IosChoices) -> None:
        self._options, self._calibration, self._choices = options, calibration, choices
        self.accepts = frozenset({choices.runtime.target})

    @property
    def options(self) -> Mapping[str, object]:
        """What decides about the package, beside the file that goes into it."""
        chosen = self._choices
        return {
            "compress": self._options.compress,
            "seed": self._options.seed,
            "module": chosen.module.text,
            "runtime": f"{chosen.runtime.target}: {chosen.runtime.library.product} {chosen.runtime.library.version}",
            "picture": chosen.picture,
            "sound": chosen.sound,
        }

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for."""
        self._api(source)

    def _api(self, source: Artifact) -> SwiftApi:
        check_one_file(source)
        chosen, features = self._choices, features_of(source) if source.path.is_dir() else None
        model = b"" if features else source.path.read_bytes()
        names = by_name(source) if features else names_of(model)
        wanted = Wanted("--ios", chosen.picture, chosen.sound)
        typed = typed_api(source, names, self._options, wanted, RESERVED)
        check_limits(model, typed.ports, chosen.runtime)
        check_opset(model, chosen.runtime.most_opset, chosen.runtime.library.product)
        packed = Packed.of(model) if self._options.compress else None
        return SwiftApi(chosen.module, chosen.runtime, typed, packed, features)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``; ``Unsupported`` for what a typed API or the library has no form for."""
        chosen, api = self._choices, self._api(source)
        package = workdir / chosen.module.text
        write_files(package, {f"Sources/{chosen.module}/Resources/{k}": v for k, v in _resources(api, source).items()})
        check_package(package, api.resources)
        inputs = with_ranges(source.inputs, self._options.preprocess)
        artifact = replace(
            source, inputs=inputs, path=package, format=self.produces, sha256="", made_by=f"{self.name} {self.version}"
        )
        with ios_runner(artifact) as runner:
            found = vectors(artifact, api.typed.ports, runner, self._calibration, self._options.seed)
        write_files(package, self._code(api, found, None if api.features is None else relative_of(source)))
        if api.features is None:
            write_files(package, required_by(source.path.read_bytes(), f"{api.stem}{chosen.runtime.suffix}"))
        return replace(artifact, sha256=sha256_of(package))

    def _code(self, api: SwiftApi, found: Sequence[Vector], share: float | None) -> dict[str, bytes]:
        tests = f"Tests/{api.module}Tests"
        texts = sources(api)
        texts[f"{tests}/{api.module}Tests.swift"] = golden_test(api, found, self._options.precision, share)
        texts["README.md"] = readme(api, len(found))
        golden = _golden(found, api.typed, self._options.seed)
        files = {name: text.encode() for name, text in texts.items()}
        return files | {f"{tests}/Golden/{name}": data for name, data in golden.items()}


def _resources(api: SwiftApi, source: Artifact) -> dict[str, bytes]:
    """What lies beside the code, by its path: the model first."""
    name = f"{api.stem}{api.suffix}"
    if source.path.is_dir():
        places = {path.relative_to(source.path).as_posix(): path for path in files_of(source.path)}
        contents = {f"{name}/{place}": path.read_bytes() for place, path in places.items()}
    else:
        model = source.path.read_bytes()
        contents = {name: model if api.packed is None else deflated(model)}
    if api.typed.labels is not None:
        contents[f"{api.module.short}.labels.txt"] = api.typed.label_text
    if api.typed.ports.states:
        contents[f"{api.module.short}.state"] = beginning(source, api.typed.ports)
    return contents | {PRIVACY: plistlib.dumps(dict(PRIVACY_CONTENT))}


def _golden(found: Sequence[Vector], typed: TypedApi, seed: int) -> dict[str, bytes]:
    """Vectors by their numbers, a picture with what it becomes, and the first vector's sound as a WAV file."""
    picture = typed.picture
    files = {f"{at}/{name}": data for at, vector in enumerate(found) for name, data in vector_files(vector).items()}
    if picture is not None:
        pixels = example_pixels(seed)
        padding = np.full((*pixels.shape[:2], 1), 255, np.uint8)
        files["picture.bin"] = np.concatenate([pixels, padding], axis=2).tobytes()
        files[f"picture_{picture.port.variable}.bin"] = little(picture.numbers(pixels))
    if typed.heard is not None:
        files["sound.wav"] = wav(found[0].inputs[typed.heard.port.variable], typed.heard.rate)
    return files


_: type[Stage] = PackageIos
