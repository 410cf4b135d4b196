"""Channel groups that Torch-Pruning finds in the zoo: ``torch_pruning_groups.py OUT.jsonl [NAME …]``.

Needs torch and torch-pruning, and runs in ``bench/``'s folder of modules.  Beside ``channel_groups.py``, which counts
ours in the same twelve architectures.  A group that reaches a layer or group normalisation is counted for itself: what
is left of such a model computes other means than the whole one.  So is one that is an output, which both leave alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch_pruning

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zoo

NORMS = (torch.nn.LayerNorm, torch.nn.GroupNorm)


def row(name: str) -> dict[str, object]:
    """Groups and channels: those that can go, those behind a normalisation, those that are outputs."""
    module, inputs = zoo.build(name)
    try:
        graph = torch_pruning.DependencyGraph().build_dependency(module, example_inputs=inputs)
        groups = list(graph.get_all_groups())
    except (TypeError, ValueError, RuntimeError) as error:
        return {"name": name, "error": str(error).splitlines()[0]}
    found = {"free": [0, 0], "norms": [0, 0], "outputs": [0, 0]}
    for group in groups:
        nodes = [each.dep.target for each in group]
        ends = [
            each for each in group if not each.dep.target.outputs and graph.is_out_channel_pruning_fn(each.dep.handler)
        ]  # fmt: skip
        kind = "norms" if any(isinstance(node.module, NORMS) for node in nodes) else "outputs" if ends else "free"
        found[kind][0] += 1
        found[kind][1] += graph.get_out_channels(group[0].dep.target.module)
    return {"name": name, **found}


def main() -> int:
    path, names = Path(sys.argv[1]), sys.argv[2:] or list(zoo.MODELS)
    known = {json.loads(line)["name"] for line in path.read_text().splitlines()} if path.exists() else set()
    torch.set_num_threads(1)
    for name in names:
        if name not in known:
            with path.open("a") as file:
                file.write(json.dumps(made := row(name)) + "\n")
            print(made, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
