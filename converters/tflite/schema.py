"""TFLite's schema as data: operators, element types and the fields of operator options.

Source: ``tensorflow/compiler/mlir/lite/schema/schema.fbs``; the numbers are the file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_OPERATORS = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
    LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX
    SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD
    UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
    UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
    BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL
    LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT
    RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
    UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
    LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK
    ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4
    NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
    PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS
    HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE
    READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL
    GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
    STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
    STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG
    STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT
    STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT
    STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL
    STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE
    STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
    STABLEHLO_CASE
"""

OPERATORS = tuple(_OPERATORS.split())
"""Builtin operators; the index is the number in the file."""

CUSTOM = OPERATORS.index("CUSTOM")
EXTENDED = OPERATORS.index("PLACEHOLDER_FOR_GREATER_OP_CODES")
"""Operators up to this number fit the file's old one-byte code."""

DTYPES = (
    "float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8", "float64",
    "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16", "int2", "uint4",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
"""Element types by their number, as NumPy and ml_dtypes name them."""

SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)

HINTS = frozenset({"asymmetric_quantize_inputs", "quantized_bias_type", "pot_scale_int16", "quant_spec"})
"""Options about how a kernel computes, not what: handlers do not see them."""

_OPTIONS = """
    1 Conv2DOptions: padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8
        dilation_w_factor:i32=1 dilation_h_factor:i32=1 quantized_bias_type:i8
    2 DepthwiseConv2DOptions: padding:i8 stride_w:i32 stride_h:i32 depth_multiplier:i32
        fused_activation_function:i8 dilation_w_factor:i32=1 dilation_h_factor:i32=1
    3 ConcatEmbeddingsOptions: num_channels:i32 num_columns_per_channel:[i32]
        embedding_dim_per_channel:[i32]
    4 LSHProjectionOptions: type:i8
    5 Pool2DOptions: padding:i8 stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32
        fused_activation_function:i8
    6 SVDFOptions: rank:i32 fused_activation_function:i8 asymmetric_quantize_inputs:bool
    7 RNNOptions: fused_activation_function:i8 asymmetric_quantize_inputs:bool
    8 FullyConnectedOptions: fused_activation_function:i8 weights_format:i8 keep_num_dims:bool
        asymmetric_quantize_inputs:bool quantized_bias_type:i8 quant_spec:[u8]
    9 SoftmaxOptions: beta:f32
    10 ConcatenationOptions: axis:i32 fused_activation_function:i8
    11 AddOptions: fused_activation_function:i8 pot_scale_int16:bool=True
    12 L2NormOptions: fused_activation_function:i8
    13 LocalResponseNormalizationOptions: radius:i32 bias:f32 alpha:f32 beta:f32
    14 LSTMOptions: fused_activation_function:i8 cell_clip:f32 proj_clip:f32 kernel_type:i8
        asymmetric_quantize_inputs:bool
    15 ResizeBilinearOptions: _ _ align_corners:bool half_pixel_centers:bool
    16 CallOptions: subgraph:u32
    17 ReshapeOptions: new_shape:[i32]
    18 SkipGramOptions: ngram_size:i32 max_skip_size:i32 include_all_ngrams:bool
    19 SpaceToDepthOptions: block_size:i32
    20 EmbeddingLookupSparseOptions: combiner:i8
    21 MulOptions: fused_activation_function:i8
    23 GatherOptions: axis:i32 batch_dims:i32
    27 ReducerOptions: keep_dims:bool
    28 SubOptions: fused_activation_function:i8 pot_scale_int16:bool=True
    29 DivOptions: fused_activation_function:i8
    30 SqueezeOptions: squeeze_dims:[i32]
    31 SequenceRNNOptions: time_major:bool fused_activation_function:i8 asymmetric_quantize_inputs:bool
    32 StridedSliceOptions: begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32
        shrink_axis_mask:i32 offset:bool
    35 SplitOptions: num_splits:i32
    37 CastOptions: in_data_type:i8 out_data_type:i8
    40 ArgMaxOptions: output_type:i8
    49 TransposeConvOptions: padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8
        quantized_bias_type:i8
    50 SparseToDenseOptions: validate_indices:bool
    55 ShapeOptions: out_type:i8
    57 ArgMinOptions: output_type:i8
    58 FakeQuantOptions: min:f32 max:f32 num_bits:i32 narrow_range:bool
    59 PackOptions: values_count:i32 axis:i32
    61 OneHotOptions: axis:i32
    64 UnpackOptions: num:i32 axis:i32
    69 BidirectionalSequenceLSTMOptions: fused_activation_function:i8 cell_clip:f32 proj_clip:f32
        merge_outputs:bool time_major:bool=True asymmetric_quantize_inputs:bool
    70 BidirectionalSequenceRNNOptions: time_major:bool fused_activation_function:i8 merge_outputs:bool
        asymmetric_quantize_inputs:bool
    71 UnidirectionalSequenceLSTMOptions: fused_activation_function:i8 cell_clip:f32 proj_clip:f32
        time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
    74 ResizeNearestNeighborOptions: align_corners:bool half_pixel_centers:bool
    75 LeakyReluOptions: alpha:f32
    77 MirrorPadOptions: mode:i8
    79 SplitVOptions: num_splits:i32
    80 UniqueOptions: idx_out_type:i8=2
    87 ReverseSequenceOptions: seq_dim:i32 batch_dim:i32
    92 IfOptions: then_subgraph_index:i32 else_subgraph_index:i32
    93 WhileOptions: cond_subgraph_index:i32 body_subgraph_index:i32
    94 DepthToSpaceOptions: block_size:i32
    101 BatchMatMulOptions: adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
    102 CumsumOptions: exclusive:bool reverse:bool
    103 CallOnceOptions: init_subgraph_index:i32
    106 Conv3DOptions: padding:i8 stride_d:i32 stride_w:i32 stride_h:i32 fused_activation_function:i8
        dilation_d_factor:i32=1 dilation_w_factor:i32=1 dilation_h_factor:i32=1
    107 HashtableOptions: table_id:i32 key_dtype:i8 value_dtype:i8
    111 VarHandleOptions: container:str shared_name:str
    114 RandomOptions: seed:i64 seed2:i64
    115 BucketizeOptions: boundaries:[f32]
    116 GeluOptions: approximate:bool
    -20 ReduceWindowOptions: reduce_function:i32
    -21 StableHLOCompositeOptions: name:str decomposition_subgraph_index:i32 composite_attributes:[u8]
        composite_attributes_format:i8 version:i32
"""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an options table: its slot, its type such as ``i32`` or ``[i32]``, and its default."""

    name: str
    slot: int
    kind: str
    default: float | bool


@dataclass(frozen=True, slots=True)
class Options:
    """One options table; ``number`` is the tag in the file, negative for the schema's second union."""

    name: str
    number: int
    fields: tuple[Field, ...]


def _field(slot: int, text: str) -> Field:
    name, _, rest = text.partition(":")
    kind, _, default = rest.partition("=")
    if kind == "bool":
        return Field(name, slot, kind, default == "True")
    return Field(name, slot, kind, float(default or 0) if kind == "f32" else int(default or 0))


def _parse(text: str) -> Mapping[str, Options]:
    tables = {}
    for line in text.replace("\n        ", " ").strip().splitlines():
        head, _, fields = line.strip().partition(": ")
        number, name = head.split()
        parsed = (_field(slot, field) for slot, field in enumerate(fields.split()) if field != "_")
        tables[name] = Options(name, int(number), tuple(parsed))
    return tables


OPTIONS = _parse(_OPTIONS)
"""Options tables by name; those without fields are left out."""

BY_NUMBER = {table.number: table for table in OPTIONS.values()}
