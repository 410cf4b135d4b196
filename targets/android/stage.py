"""A model's file becomes an AAR, a Maven repository and a Gradle project with a typed API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Artifact, sha256_of
from convertkit.parity.golden import Vector
from convertkit.processing.words import with_ranges
from convertkit.recipe import ExportOptions
from convertkit.stage import EXACT, FeedSource, Stage
from convertkit.targets.android import maven, project
from convertkit.targets.android.aar import aar
from convertkit.targets.android.checks import check_package
from convertkit.targets.android.kotlin import Api, golden_test, sources
from convertkit.targets.android.names import RESERVED, PackageName
from convertkit.targets.android.readme import readme
from convertkit.targets.android.runner import AndroidRunner
from convertkit.targets.android.runtimes import PhoneRuntime
from convertkit.targets.mobile.api import TypedApi, Wanted, beginning, check_one_file, typed_api
from convertkit.targets.mobile.deflated import Packed, deflated
from convertkit.targets.mobile.files import write_files
from convertkit.targets.mobile.golden import little, vector_files, vectors, wav
from convertkit.targets.mobile.opsets import check_opset
from convertkit.targets.mobile.order import names_of
from convertkit.targets.mobile.pictures import example_pixels
from convertkit.targets.mobile.reduced import required_by


@dataclass(frozen=True, slots=True)
class AndroidChoices:
    """The values of the target's own options."""

    package: PackageName
    version: str
    min_sdk: int
    runtime: PhoneRuntime
    picture: str | None
    sound: str | None
    ai_pack: bool


class PackageAndroid:
    """Packages the file as it is, or deflated; the same numbers come out of the package."""

    name = "android"
    version = "1"
    produces = "android"
    tolerance = EXACT

    def __init__(self, options: ExportOptions, calibration: FeedSource | None, choices: AndroidChoices) -> None:
        self._options, self._calibration, self._choices = options, calibration, choices
        self.accepts = frozenset({choices.runtime.target})

    @property
    def options(self) -> Mapping[str, object]:
        """What decides about the package, beside the file that goes into it."""
        chosen, flags = self._choices, self._options
        return {
            "compress": self._options.compress,
            "seed": flags.seed,
            "package": chosen.package.text,
            "version": chosen.version,
            "min_sdk": chosen.min_sdk,
            "runtime": f"{chosen.runtime.target}: {chosen.runtime.library}",
            "picture": chosen.picture,
            "sound": chosen.sound,
            "ai_pack": chosen.ai_pack,
        }

    def foretell(self, source: Artifact) -> None:
        """What :meth:`run` refuses ``source`` for."""
        self._api(source, source.path.read_bytes())

    def _api(self, source: Artifact, model: bytes) -> Api:
        check_one_file(source)
        chosen = self._choices
        wanted = Wanted("--android", chosen.picture, chosen.sound)
        typed = typed_api(source, names_of(model), self._options, wanted, RESERVED)
        check_opset(model, chosen.runtime.most_opset, str(chosen.runtime.library))
        packed = Packed.of(model) if self._options.compress else None
        return Api(chosen.package, chosen.runtime, typed, chosen.ai_pack, packed)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``; ``Unsupported`` for what a typed API or the library has no form for."""
        chosen, model = self._choices, source.path.read_bytes()
        runtime, api = chosen.runtime, self._api(source, model)
        made = chosen.package.coordinates(chosen.version)
        beside = _beside(api, source)
        held = model if api.packed is None else deflated(model)
        stored = {api.asset} if api.packed is None else set()
        archive = aar(f"{chosen.package}.assets", chosen.min_sdk, runtime.rules, {api.asset: held} | beside, stored)
        path = workdir / f"{made.file}.aar"
        path.write_bytes(archive)
        repository = maven.repository(made, archive, runtime.library, api.typed.description)
        write_files(workdir / "maven", repository)
        check_package(workdir, path, made, runtime.library)
        made_by = f"{self.name} {self.version}"
        inputs = with_ranges(source.inputs, self._options.preprocess)
        artifact = replace(
            source, inputs=inputs, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by
        )
        with AndroidRunner(artifact) as runner:
            found = vectors(artifact, api.typed.ports, runner, self._calibration, self._options.seed)
        write_files(workdir, self._project(api, found, held, beside))
        write_files(workdir, required_by(model, f"{chosen.package.short}{runtime.suffix}"))
        return artifact

    def _project(self, api: Api, found: Sequence[Vector], held: bytes, beside: Mapping[str, bytes]) -> dict[str, bytes]:
        """The Gradle project, and the page that says what is there."""
        chosen, short = self._choices, api.package.short
        made = chosen.package.coordinates(chosen.version)
        code = f"{short}/src/main/kotlin/{api.package.folder}"
        test = f"{short}/src/androidTest/kotlin/{api.package.folder}/{api.package.kotlin_class}GoldenTest.kt"
        texts = project.project(api, made, chosen.min_sdk)
        texts |= {f"{code}/{name}": text for name, text in sources(api).items()}
        texts[test] = golden_test(api, found, self._options.precision)
        files = {name: text.encode() for name, text in texts.items()}
        golden = _golden(found, api.typed, self._options.seed)
        files |= {f"{short}/src/androidTest/assets/golden/{name}": data for name, data in golden.items()}
        if api.in_pack:
            files[project.packed_model(short, api.suffix)] = held
            files |= {f"{short}/src/main/assets/{name}": data for name, data in beside.items()}
        page = readme(api, made, chosen.min_sdk, len(found))
        return {"README.md": page.encode(), **{f"project/{name}": data for name, data in files.items()}}


def _golden(found: Sequence[Vector], typed: TypedApi, seed: int) -> dict[str, bytes]:
    """Vectors by their numbers, a picture with what it becomes, and the first vector's sound as a WAV file."""
    picture = typed.picture
    files = {f"{at}/{name}": data for at, vector in enumerate(found) for name, data in vector_files(vector).items()}
    if picture is not None:
        pixels = example_pixels(seed)
        red, green, blue = (pixels[:, :, at].astype(np.uint32) for at in range(3))
        files["picture.bin"] = little((0xFF000000 | red << 16 | green << 8 | blue).astype(np.uint32))
        files[f"picture_{picture.port.variable}.bin"] = little(picture.numbers(pixels))
    if typed.heard is not None:
        files["sound.wav"] = wav(found[0].inputs[typed.heard.port.variable], typed.heard.rate)
    return files


def _beside(api: Api, source: Artifact) -> dict[str, bytes]:
    """The assets beside the model."""
    typed = api.typed
    found = {api.state_asset: beginning(source, typed.ports)} if typed.ports.states else {}
    return found | ({} if typed.labels is None else {api.label_asset: typed.label_text})


_: type[Stage] = PackageAndroid
