"""What ``--device`` decides, by the cost tables: ``device_choices.py MODEL.onnx … [--for x86 --for phone,x86 …]``.

Prints a Markdown row for each model and choice: how many of its operators become integers, and what the model takes
in milliseconds on each device by its own table; then those that phones and servers want otherwise, by kind, with what
they take in integers and in float on both: the reason.  Nothing is exported: accuracy, which moves some operators back
to float, is not looked at.  Beside MODEL.onnx lies MODEL.calib.npz, whose first sample tells sizes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
from page_rows import replace_between

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.sizes import measure_sizes
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.quantization.place.exact_float import exact_in_float
from convertkit.quantization.place.graph_cost import written_cost
from convertkit.quantization.place.masks import marking_units
from convertkit.quantization.place.precision_assignment import choose_integer
from convertkit.quantization.prepare.norms import norms_as_convolutions
from convertkit.quantization.prepare.prepare import prepare
from convertkit.quantization.prepare.resizing import convolve_before_enlarging
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile

DEVICES = ("x86", "x86-avx512", "x86-vnni", "arm64-a55", "arm64-a76", "arm64-i8mm")
CHOICES = ("x86", "phone", "phone,x86")
PAGE = Path(__file__).parents[1] / "docs" / "measurements" / "device-costs.md"
BEGIN, END = "<!-- bench/device_choices.py -->", "<!-- end of choices -->"
SERVER, PHONE = "x86", "phone"
SHOWN = 4


def rules(*devices: str) -> QuantProfile:
    return profile(ExportOptions(source="", precision="int8", device=devices))


def prepared(path: Path) -> ir.Model:
    """The model as the quantizer looks at it."""
    model = canonicalize(load_model(path))
    samples = np.load(path.with_suffix(".calib.npz"))
    prepare(model)
    convolve_before_enlarging(model)
    norms_as_convolutions(model)
    measure_sizes(model, {name: samples[name][:1] for name in samples.files if name != "label"}, {})
    return model


def choices(model: ir.Model, asked: list[str]) -> dict[str, tuple[tuple[Unit, ...], frozenset[Unit]]]:
    """All operators and those that become integers, by what is asked for."""
    found = {}
    for each in ["float32", *asked]:
        known = rules(*each.split(",")) if each in asked else rules()
        units = find_units(model.graph, known)
        chosen = choose_integer(units, known, insist=False, keep_float=marking_units(units))
        found[each] = (units, frozenset() if each == "float32" else chosen)
    return found


def milliseconds(units: tuple[Unit, ...], chosen: frozenset[Unit], device: str) -> float:
    """By the table of ``device``."""
    known = rules(device)
    if not chosen:
        return sum(unit_cost(unit, known)[1] for unit in units) / 1e6
    marking = marking_units(units)
    exact = exact_in_float([unit for unit in units if unit.name not in marking], chosen, known)
    return written_cost(units, chosen, exact - chosen, known) / 1e6


def rows(path: Path, asked: list[str]) -> Iterator[str]:
    """Of one model; a choice that is the same as a later one is not told twice."""
    found = choices(prepared(path), asked)
    for place, (title, (units, chosen)) in enumerate(found.items()):
        names = {unit.name for unit in chosen}
        if chosen and any(names == {unit.name for unit in later} for _, later in list(found.values())[place + 1 :]):
            continue
        times = " | ".join(f"{milliseconds(units, chosen, device):.3g}" for device in DEVICES)
        rest = Counter(unit.kinds[-1] for unit in units if unit not in chosen).most_common(SHOWN)
        told = ", ".join(f"{count} {kind}" for kind, count in rest) if chosen else ""
        name = title if title == "float32" else f"`{title}`"
        yield f"| {path.stem} | {name} | {len(chosen)} / {len(units)} | {times} | {told} |"


def differing(path: Path) -> Iterator[str]:
    """Of one model: kinds of operators that are integers for one of phones and servers alone, the dearest first."""
    found = choices(prepared(path), [SERVER, PHONE])
    names = {title: {unit.name for unit in chosen} for title, (_, chosen) in found.items()}
    other = names[SERVER] ^ names[PHONE]
    kinds: dict[tuple[str, str], np.ndarray] = {}
    for place, title in enumerate((SERVER, PHONE)):
        known = rules(title)
        for unit in found[title][0]:
            if unit.name in other:
                own = SERVER if unit.name in names[SERVER] else PHONE
                row = kinds.setdefault((unit.kinds[0], own), np.zeros((3, 2)))
                row[2, place] += 1
                row[place] += np.array(unit_cost(unit, known)) / 1e3
    for (kind, own), row in sorted(kinds.items(), key=lambda item: -item[1][:2].max()):
        times = " | ".join(", ".join(f"{us:.0f}" if us >= 100 else f"{us:.3g}" for us in pair) for pair in row[:2])
        yield f"| {path.stem} | {row[2, 0]:.0f} {kind} | `{own}` | {times} |"


def main() -> None:
    """Print the rows, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--for", action="append", dest="asked", metavar="DEVICES")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    head = "| model | chosen for | integers | " + " | ".join(f"`{each}`" for each in DEVICES) + " | float among them |"
    made = [BEGIN, head, "|---" * (len(DEVICES) + 4) + "|"]
    made += [row for path in args.models for row in rows(path, args.asked or list(CHOICES))]
    made += ["", f"| model | operators | integers for | on `{SERVER}`: integers, float µs | on `{PHONE}` µs |"]
    made += ["|---|---|---|---|---|", *(row for path in args.models for row in differing(path))]
    if not args.write:
        print("\n".join((*made, END)))
        return
    replace_between(PAGE, "\n".join((*made, END)), BEGIN, END)


if __name__ == "__main__":
    main()
