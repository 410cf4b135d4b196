"""Operators that reach beyond the model: files, networks, processes and Python; tables and strings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from convertkit.converters.tensorflow.graph import STANDARD_ERROR, Graph, Node, Signature
from convertkit.errors import Unsupported, Untrusted

_OPERATORS = """
    ReadFile WriteFile MatchingFiles Save SaveSlices Restore RestoreSlice LoadAndRemapMatrix
    GenerateVocabRemapping PyFunc PyFuncStateless EagerPyFunc Abort PrintV2 DebugIdentity DebugIdentityV2
    DebugIdentityV3 DebugNumericSummary DebugNumericSummaryV2 DebugNanCount TextLineReader TextLineReaderV2
    FixedLengthRecordReader FixedLengthRecordReaderV2 TFRecordReader TFRecordReaderV2 WholeFileReader
    WholeFileReaderV2 IdentityReader IdentityReaderV2 LMDBReader ReaderRead ReaderReadV2 ReaderReadUpTo
    ReaderReadUpToV2 TextLineDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2 TFRecordDataset
    TFRecordDatasetV2 SqlDataset ExperimentalSqlDataset LMDBDataset ExperimentalLMDBDataset CSVDataset
    CSVDatasetV2 ExperimentalCSVDataset CacheDataset CacheDatasetV2 SnapshotDataset SnapshotDatasetV2
    SaveDataset SaveDatasetV2 LoadDataset DatasetToTFRecord ExperimentalDatasetToTFRecord DataServiceDataset
    DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4 RegisterDataset RegisterDatasetV2
    FileSystemSetConfiguration CreateSummaryFileWriter CreateSummaryDbWriter SummaryWriter WriteSummary
    WriteScalarSummary WriteImageSummary WriteAudioSummary WriteHistogramSummary WriteGraphSummary
    WriteRawProtoSummary ImportEvent FlushSummaryWriter RpcServer RpcServerStart RpcServerRegister RpcClient
    RpcCall RpcCheckStatus RpcGetValue RemoteCall CollectiveBcastSend CollectiveBcastRecv Copy CopyHost
    MatchingFilesDataset ExperimentalMatchingFilesDataset ListSnapshotChunksDataset SnapshotDatasetReader
    SnapshotNestedDatasetReader SnapshotChunkDataset DTensorRestoreV2 DistributedSave CalibrationStatisticsSaver
    StatsAggregatorSetSummaryWriter Send Recv CollectiveReduceV2 CollectiveReduceV3 CollectiveGatherV2
    CollectiveBcastSendV2 CollectiveBcastRecvV2 CollectiveInitializeCommunicator
"""

_REACHES_OUT = frozenset(_OPERATORS.split())
"""Refused wherever they stand, since loading may run any function of the file."""

_CHECKPOINTS = frozenset({"SaveV2", "RestoreV2", "MergeV2Checkpoints"})
"""Every SavedModel holds these to restore its variables; a computation has no business with them."""

_TABLES = ("HashTable", "LookupTable", "MutableDenseHashTable", "InitializeTable")

_DRAWING = """
    RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal ParameterizedTruncatedNormal Multinomial
    RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle StatefulStandardNormalV2 StatefulTruncatedNormal
    StatefulUniform StatefulUniformFullInt StatefulUniformInt StatefulRandomBinomial NonDeterministicInts
"""
_CHANCE = frozenset(_DRAWING.split())
_WRITES = ("Assign", "ResourceScatter", "ResourceApply", "ScatterUpdate", "ScatterAdd", "StackPush", "QueueEnqueue")


def told_changes(nodes: Iterable[Node]) -> str:
    """The first operator that may give another result on the same input, as refusals name it; empty without one."""
    for node in nodes:
        if node.op in _CHANCE:
            return f"{node.name} ({node.op}) draws random numbers"
        if node.op.startswith(_WRITES):
            return f"{node.name} ({node.op}) changes a variable"
    return ""


def refuse_dangerous(path: Path, graph: Graph, tensors: Iterable[str], trusted: bool) -> list[str]:
    """Raise ``Untrusted`` where the graph reaches beyond the model; gives what was let pass by trust."""
    reaching = [node for node in graph.everything() if node.op in _REACHES_OUT and not _only_prints(node)]
    reaching += [node for node in graph.behind(iter(tensors)) if node.op in _CHECKPOINTS]
    found = sorted({node.op for node in reaching})
    if found and not trusted:
        raise Untrusted(
            f"{path}: the graph holds {', '.join(found)} ({reaching[0].name}): it reaches files, networks or Python\n"
            "  try   --trust pyfunc, if you trust whoever made the model to run code on this machine"
        )
    return found


def _only_prints(node: Node) -> bool:
    """Whether this is ``tf.print`` to the terminal or a log, not to a file; no output waits for it."""
    return node.op == "PrintV2" and (node.prints_to in ("stdout", STANDARD_ERROR) or node.prints_to.startswith("log("))


def refuse_inexpressible(signature: Signature, nodes: Iterable[Node]) -> None:
    """Raise ``Unsupported`` for strings at the border and lookup tables inside."""
    for role, ends in (("input", signature.inputs), ("output", signature.outputs)):
        for end in ends:
            if end.dtype in ("string", "resource", "variant"):
                raise Unsupported(
                    f"{role} {end.key!r} of signature {signature.key!r} holds {end.dtype} values; only numbers can "
                    "cross an artifact's interface",
                    ways_out=("a signature that takes numbers: do lookups and parsing before the model",),
                )
    for node in nodes:
        if any(word in node.op for word in _TABLES):
            raise Unsupported(
                f"signature {signature.key!r} uses the lookup table {node.name} ({node.op}); ONNX holds no tables",
                ways_out=("a signature that takes the looked-up numbers",),
            )
