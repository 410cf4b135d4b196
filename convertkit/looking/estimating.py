"""``convertkit bench --device``: what artifacts take on devices that are not here, by the target's cost tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from convertkit import plugins
from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import UsageError
from convertkit.looking.opened import opened, size_of
from convertkit.looking.tables import Table
from convertkit.looking.timing import as_run
from convertkit.operators import EstimatingTarget, NodeTime
from convertkit.options.relevance import check_devices
from convertkit.recipe import THIS

_MOST_NODES = 12


@dataclass(frozen=True, slots=True)
class Estimated:
    """Milliseconds of a call of one artifact on one device, in all and by operator; the same on every machine."""

    name: str
    sha256: str
    size_bytes: int
    device: str
    ms: float
    nodes: tuple[NodeTime, ...]


def estimated(names: Sequence[str], devices: Sequence[str]) -> tuple[Estimated, ...]:
    """Each artifact on each device, those of a device together.

    Raises ``UsageError`` for a format or a device without tables, ``Unsupported`` for an operator without a row.
    """
    if THIS in devices:
        raise UsageError(f"--device {THIS}: without --device, bench measures on this machine; an estimate is less")
    found = [each for name in names for each in _of_one(name, devices)]
    return tuple(sorted(found, key=lambda each: list(devices).index(each.device)))


def _of_one(name: str, devices: Sequence[str]) -> list[Estimated]:
    with opened(name) as found:
        packaged = _estimating(found.artifact)
        artifact = as_run(found) if packaged is None else found.artifact
        target = packaged or _target(name, artifact)
        check_devices(devices, target.devices)
        estimates = target.estimates(artifact, devices)
        sha256, size = sha256_of(artifact.path), size_of(artifact)
    return [Estimated(name, sha256, size, each.device, each.ms, each.nodes) for each in estimates]


def _estimating(artifact: Artifact) -> EstimatingTarget | None:
    target = plugins.target(artifact.format) if artifact.format in plugins.target_names() else None
    return target if isinstance(target, EstimatingTarget) else None


def _target(name: str, artifact: Artifact) -> EstimatingTarget:
    target = _estimating(artifact)
    if target is not None:
        return target
    able = [each for each in plugins.target_names() if isinstance(plugins.target(each), EstimatingTarget)]
    listed = ", ".join(able)
    raise UsageError(
        f"{name}: what {artifact.format} takes elsewhere is not estimated; --device is for artifacts of {listed}"
    )


def operator_table(found: Sequence[Estimated]) -> Table:
    """The operators of one estimate, the slowest first; of several their kinds."""
    if len(found) == 1:
        ranked = sorted(found[0].nodes, key=lambda node: (-node.ms, node.name))
        rows = [(node.name, node.kind, f"{node.ms:.4f}") for node in ranked[:_MOST_NODES] if node.ms]
        return Table("slowest operators, estimated", ("operator", "kind", "ms"), tuple(rows), (2,))
    sums = [_by_kind(each) for each in found]
    kinds = sorted({kind for each in sums for kind in each}, key=lambda kind: (-max(each[kind] for each in sums), kind))
    rows_of_kinds = tuple((kind, *(f"{each[kind]:.4f}" for each in sums)) for kind in kinds[:_MOST_NODES])
    head = ("kind", *(f"{each.name}, {each.device}" for each in found))
    return Table("milliseconds by kind of operator, estimated", head, rows_of_kinds, tuple(range(1, len(head))))


def _by_kind(found: Estimated) -> defaultdict[str, float]:
    sums = defaultdict[str, float](float)
    for node in found.nodes:
        sums[node.kind] += node.ms
    return sums
