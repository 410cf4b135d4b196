"""MIL programs in NumPy: what a package computes, told from its bytes alone."""

from __future__ import annotations

from convertkit.targets.coreml.evaluator.arithmetic import arithmetic
from convertkit.targets.coreml.evaluator.classification import classification
from convertkit.targets.coreml.evaluator.convolution import convolution
from convertkit.targets.coreml.evaluator.indexing import indexing
from convertkit.targets.coreml.evaluator.integers import integers
from convertkit.targets.coreml.evaluator.moves import moves
from convertkit.targets.coreml.evaluator.norms import norms
from convertkit.targets.coreml.evaluator.pooling import pooling
from convertkit.targets.coreml.evaluator.recurrent import recurrent
from convertkit.targets.coreml.evaluator.reductions import reductions
from convertkit.targets.coreml.evaluator.sampling import sampling
from convertkit.targets.coreml.evaluator.states import states
from convertkit.targets.coreml.evaluator.suppression import suppression
from convertkit.targets.coreml.evaluator.table import Table

TABLE = Table(
    [
        arithmetic,
        classification,
        convolution,
        indexing,
        integers,
        moves,
        norms,
        pooling,
        recurrent,
        reductions,
        sampling,
        states,
        suppression,
    ]
)
"""What each operation computes."""
