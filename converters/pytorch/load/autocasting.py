"""Regions of ``torch.autocast("cuda")`` in exported programs, with their casts written out.

A program keeps such a region as it was, and on a processor it does nothing, so that tensors of another type arrive at
operators.  Every operator that CUDA's policy has a type for gets casts before it, as on the GPU; what it gives then has
to be of the type that the GPU gave, which the program has beside the operator, or the program is refused.

Source: ``ATen/autocast_mode.h`` of torch, and "CUDA Op-Specific Behavior" of its documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from convertkit.converters.pytorch.compat import overloads
from convertkit.errors import Unsupported


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOWER = _names(
    "_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input "
    "conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm "
    "bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell "
    "rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention"
)
"""What computes in the type of the region."""
SINGLE = _names(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar "
    "pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim "
    "nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d "
    "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss "
    "soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm "
    "logsumexp "
    "upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d "
    "upsample_bicubic2d _upsample_bicubic2d_aa"
)
"""What computes in float32."""
SINGLE_UNLESS_TOLD = _names(
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
    "linalg_matrix_norm.str_ord sum sum.dim_IntList"
)
"""What does so where the call names no type."""
WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
"""What computes in the widest type of its operands."""
_REGION = "wrap_with_autocast"
_OUT = "save exported.run_decompositions() on the machine with the GPU, which has the casts written out"


def write_casts(program: Any) -> None:
    """Write out the casts of every region for another device than the processor, in place."""
    for node in list(program.graph_module.graph.nodes):
        _visit(program.graph_module, node, None)


def _visit(module: Any, node: Any, kind: torch.dtype | None) -> None:
    """A node in a region of the type ``kind``, or in none; regions within it by their own settings."""
    inner = [module.get_submodule(each.target) for each in node.all_input_nodes if _is_graph(module, each)]
    if getattr(node.target, "_name", "") == _REGION:
        kind = _opened(node)
    elif kind is not None and overloads.is_overload(node.target):
        _cast(node, kind)
    for graph in inner:
        for each in list(graph.graph.nodes):
            _visit(graph, each, kind)
        graph.recompile()


def _opened(region: Any) -> torch.dtype | None:
    """The type of a region, which does nothing of its own from now on; None for one that leaves types alone."""
    device, dtype, enabled = region.args[:3]
    if device == "cpu" or not enabled:
        return None
    if device != "cuda":
        raise Unsupported(f"a region of torch.autocast for {device}, whose policy is not known here; {_OUT}")
    region.args = (device, dtype, False, *region.args[3:])
    return dtype or torch.float16


def _is_graph(module: Any, node: Any) -> bool:
    return node.op == "get_attr" and isinstance(getattr(module, node.target, None), fx.GraphModule)


def _cast(node: Any, region: torch.dtype) -> None:
    """Cast the operands of an operator as in a region, and compare the type of its result with the GPU's."""
    kind = _kind(node, region)
    for operand in node.all_input_nodes if kind is not None else ():
        value = operand.meta.get("val")
        if isinstance(value, torch.Tensor) and _is_cast(value) and value.dtype != kind:
            with node.graph.inserting_before(node):
                cast = node.graph.call_function(torch.ops.aten.to.dtype, (operand, kind))
            with value.fake_mode:
                cast.meta = {"val": value.to(kind)}
            node.replace_input_with(operand, cast)
    wanted = [each.dtype for each in _tensors(node.meta.get("val"))]
    if wanted and any(_is_tensor(each) for each in node.all_input_nodes) and wanted != _computed(node):
        raise Unsupported(
            f"{overloads.name_of(node.target).replace('::', '.')} in a region of torch.autocast gives "
            f"{str(wanted[0]).removeprefix('torch.')} on the GPU, which is not by the policy of CUDA known here; {_OUT}"
        )


def _kind(node: Any, region: torch.dtype) -> torch.dtype | None:
    """The type that an operator computes in; None where its operands decide."""
    name = overloads.name_of(node.target).removeprefix("aten::")
    overload = str(node.target._overloadname)
    full = name if overload == "default" else f"{name}.{overload}"
    if full in LOWER:
        return region
    told = node.kwargs.get("dtype") is not None or any(isinstance(each, torch.dtype) for each in node.args)
    if full in SINGLE or (name in SINGLE and overload == "vec") or (full in SINGLE_UNLESS_TOLD and not told):
        return torch.float32
    if full not in WIDEST:
        return None
    kinds = {each.meta["val"].dtype for each in node.all_input_nodes if _is_cast(each.meta.get("val"))}
    return torch.float32 if torch.float32 in kinds else region


def _is_cast(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _computed(node: Any) -> list[torch.dtype]:
    """The types that an operator gives of operands as they are; none where it does not take them."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))
    mode = next(each.meta["val"].fake_mode for each in node.all_input_nodes if _is_tensor(each))
    try:
        with mode:
            return [each.dtype for each in _tensors(node.target(*args, **kwargs))]
    except RuntimeError:
        return []


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result, however they are nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
