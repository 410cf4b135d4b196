"""The contracts that converters, passes and targets fulfil.

A stage turns one artifact into the next and declares a tolerance; the pipeline replays the same
feeds through both sides and decides.  A stage can neither forget that check nor weaken it.
"""

from convertkit.stage.needs import FlagReader, WithEngine, WithExtra
from convertkit.stage.runner import Feed, NamedRunner, Outputs, Portable, PortableRunner, Runner, RunnerFactory
from convertkit.stage.source import (
    ConcurrentSource,
    Converter,
    FeedSource,
    FilesConverter,
    FreedSource,
    LiveConverter,
    SettledSource,
    Source,
)
from convertkit.stage.step import DiagnosedStage, ForetellingStage, Settled, SettlingStage, Stage
from convertkit.stage.target import (
    BuildContext,
    CheckingTarget,
    ChoosingTarget,
    DeviceReader,
    Execution,
    FlexibleTarget,
    GoldenTarget,
    Once,
    PackagingTarget,
    PassPlugin,
    PrecisionDeviceReader,
    ReasoningTarget,
    Replay,
    SelectiveTarget,
    SimulatedTarget,
    StaticTarget,
    Target,
    execution,
)
from convertkit.stage.tolerance import EXACT, FLOAT32, LOSSY, Tolerance

__all__ = [
    "EXACT",
    "FLOAT32",
    "LOSSY",
    "BuildContext",
    "CheckingTarget",
    "ChoosingTarget",
    "ConcurrentSource",
    "Converter",
    "DeviceReader",
    "DiagnosedStage",
    "Execution",
    "Feed",
    "FeedSource",
    "FilesConverter",
    "FlagReader",
    "FlexibleTarget",
    "ForetellingStage",
    "FreedSource",
    "GoldenTarget",
    "LiveConverter",
    "NamedRunner",
    "Once",
    "Outputs",
    "PackagingTarget",
    "PassPlugin",
    "Portable",
    "PortableRunner",
    "PrecisionDeviceReader",
    "ReasoningTarget",
    "Replay",
    "Runner",
    "RunnerFactory",
    "SelectiveTarget",
    "Settled",
    "SettledSource",
    "SettlingStage",
    "SimulatedTarget",
    "Source",
    "Stage",
    "StaticTarget",
    "Target",
    "Tolerance",
    "WithEngine",
    "WithExtra",
    "execution",
]
