"""A model's file becomes an AAR, a Maven repository and a Gradle project with a typed API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import Unsupported
from convertkit.model_flags import labelled, labels
from convertkit.recipe import ExportOptions
from convertkit.stage import EXACT, FeedSource, Stage
from convertkit.state import initial_state
from convertkit.targets.android import project
from convertkit.targets.android.aar import aar
from convertkit.targets.android.checks import check_package
from convertkit.targets.android.kotlin import Api, golden_test, sources
from convertkit.targets.android.maven import repository
from convertkit.targets.android.names import RESERVED, PackageName
from convertkit.targets.android.readme import readme
from convertkit.targets.android.runner import AndroidRunner
from convertkit.targets.android.runtimes import PhoneRuntime
from convertkit.targets.mobile.golden import Vector, little, vectors
from convertkit.targets.mobile.order import names_of
from convertkit.targets.mobile.pictures import Picture, example_pixels, picture_of, sound_of
from convertkit.targets.mobile.ports import Ports, ports_of


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
    """Packages the file as it is; the same numbers come out of the package."""

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
            "seed": flags.seed,
            "package": chosen.package.text,
            "version": chosen.version,
            "min_sdk": chosen.min_sdk,
            "runtime": str(chosen.runtime.library),
            "picture": chosen.picture,
            "sound": chosen.sound,
            "ai_pack": chosen.ai_pack,
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Package ``source``; ``Unsupported`` for what a typed API has no form for, ``UsageError`` for wrong names."""
        _one_file(source)
        chosen, model = self._choices, source.path.read_bytes()
        api, content = self._api(source, model)
        made = chosen.package.coordinates(chosen.version)
        assets = {api.asset: model}
        beside = {api.state_asset: _states(source, api.ports)} if api.ports.states else {}
        if api.labels is not None:
            beside[api.label_asset] = content
        runtime = chosen.runtime
        archive = aar(f"{chosen.package}.assets", chosen.min_sdk, runtime.rules, assets | beside, assets.keys())
        path = workdir / f"{made.file}.aar"
        path.write_bytes(archive)
        files = {f"maven/{k}": v for k, v in repository(made, archive, runtime.library, api.description).items()}
        _write(workdir, files)
        check_package(workdir, path, made, runtime.library)
        made_by = f"{self.name} {self.version}"
        artifact = replace(source, path=path, format=self.produces, sha256=sha256_of(path), made_by=made_by)
        with AndroidRunner(artifact) as runner:
            found = vectors(artifact, api.ports, runner, self._calibration, self._options.seed)
        _write(workdir, self._project(api, found, model, beside))
        return artifact

    def _api(self, source: Artifact, model: bytes) -> tuple[Api, bytes]:
        """What the API speaks of, and the labels' file."""
        chosen, options = self._choices, self._options
        ports = ports_of(source, *names_of(model), RESERVED)
        picture = picture_of(chosen.picture, "--android-image", ports.given, options)
        sound = sound_of(chosen.sound, "--android-audio", ports.given)
        content, named = b"", None
        if options.label_file is not None:
            content = labels(Path(options.label_file))
            name = labelled(options.label_file, content, source.outputs)
            named = next(port for port in ports.returned if port.name == name)
        count = content.count(b"\n")
        text = options.description
        return Api(chosen.package, chosen.runtime, ports, picture, sound, named, count, text, chosen.ai_pack), content

    def _project(
        self, api: Api, found: Sequence[Vector], model: bytes, beside: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """The Gradle project, and the page that says what is there."""
        chosen, short = self._choices, api.package.short
        made = chosen.package.coordinates(chosen.version)
        code = f"{short}/src/main/kotlin/{api.package.folder}"
        test = f"{short}/src/androidTest/kotlin/{api.package.folder}/{api.package.kotlin_class}GoldenTest.kt"
        texts = project.project(api, made, chosen.min_sdk)
        texts |= {f"{code}/{name}": text for name, text in sources(api).items()}
        texts[test] = golden_test(api, found, self._options.precision)
        files = {name: text.encode() for name, text in texts.items()}
        golden = _golden(found, api.picture, self._options.seed)
        files |= {f"{short}/src/androidTest/assets/golden/{name}": data for name, data in golden.items()}
        if api.in_pack:
            files[project.packed_model(short, api.runtime.suffix)] = model
            files |= {f"{short}/src/main/assets/{name}": data for name, data in beside.items()}
        page = readme(api, made, chosen.min_sdk, len(found))
        return {"README.md": page.encode(), **{f"project/{name}": data for name, data in files.items()}}


def _golden(found: Sequence[Vector], picture: Picture | None, seed: int) -> dict[str, bytes]:
    """Vectors by their numbers, and a picture with what it becomes."""
    files = {f"{at}/{name}": data for at, vector in enumerate(found) for name, data in vector.files().items()}
    if picture is not None:
        pixels = example_pixels(seed)
        red, green, blue = (pixels[:, :, at].astype(np.uint32) for at in range(3))
        files["picture.bin"] = little((0xFF000000 | red << 16 | green << 8 | blue).astype(np.uint32))
        files[f"picture_{picture.port.variable}.bin"] = little(picture.numbers(pixels))
    return files


def _states(source: Artifact, ports: Ports) -> bytes:
    """What state begins with, as the model's own elements, one after another."""
    start = initial_state(source)
    specs = {spec.name: spec for spec in source.inputs}
    return b"".join(little(specs[port.name].encode(start[port.name])) for port in ports.states)


def _one_file(source: Artifact) -> None:
    beside = [path for path in source.path.parent.iterdir() if path.name.startswith(f"{source.path.name}.")]
    if beside:
        raise Unsupported(
            f"its weights are in a file of their own, {beside[0].name}, and an app's asset is one file",
            subject=source.path.name,
            ways_out=("--int8 or --w8, whose weights take a quarter",),
        )


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


_: type[Stage] = PackageAndroid
