"""Operators that torch's ONNX exporter lacks, by operators that it has; each only where a program needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.compat.overloads import without_writing
from convertkit.converters.pytorch.operators import (
    averages,
    bags,
    distances,
    experts,
    losses,
    maximum_pools,
    mixed_types,
    over_all,
    places,
    rankless,
    recurrent,
    resized,
    rounded_down,
    scans,
    scatters,
    smoothed,
    special,
    strided,
    volumes,
    whole_numbers,
    windows,
)
from convertkit.converters.pytorch.operators.per_sample import convolution, convolution_1d, has_dynamic_groups

_ATEN = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Substitute:
    """A function for an operator, and whether a node of it needs that; the function stands aside for other nodes."""

    function: Callable[..., Any]
    needed: Callable[[Any], bool]


def substitutes(program: Any) -> dict[Any, Callable[..., Any]]:
    """What ``run_decompositions`` has to take apart in this program, by overload.

    Where nodes of several kinds are there, the later table's function is asked first.
    """
    found: dict[Any, list[Callable[..., Any]]] = {}
    nodes = [(node, without_writing(node.target)) for node in program.graph.nodes]
    for table in (_WHOLE, _ROUNDED, _RANKLESS, _MIXED, WIDER, SUBSTITUTES):
        for target in {target for node, target in nodes if target in table and table[target].needed(node)}:
            found.setdefault(target, []).append(table[target].function)
    return experts.substitutes(program) | {target: _first_of(functions) for target, functions in found.items()}


def _first_of(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """The result of the first function that does not stand aside."""
    if len(functions) == 1:
        return functions[0]

    def function(*args: Any, **kwargs: Any) -> Any:
        results = (each(*args, **kwargs) for each in functions)
        return next((result for result in results if result is not NotImplemented), NotImplemented)

    return function


def unsqueeze(z: Tensor, dim: int) -> Any:
    """Of complex numbers, whose parts lie along one more axis in ONNX."""
    if not z.is_complex():
        return NotImplemented
    return torch.view_as_complex(torch.view_as_real(z).unsqueeze(dim if dim >= 0 else dim - 1))


def expand(z: Tensor, size: Sequence[Any], implicit: bool = False) -> Any:
    """Of complex numbers."""
    return torch.view_as_complex(torch.view_as_real(z).expand([*size, 2])) if z.is_complex() else NotImplemented


def select(z: Tensor, dim: int, index: Any) -> Any:
    """Of complex numbers."""
    if not z.is_complex():
        return NotImplemented
    return torch.view_as_complex(torch.view_as_real(z).select(dim if dim >= 0 else dim - 1, index))


def index(z: Tensor, indices: Sequence[Any]) -> Any:
    """Of complex numbers."""
    return (
        torch.view_as_complex(_ATEN.index.Tensor(torch.view_as_real(z), indices)) if z.is_complex() else NotImplemented
    )


def exp(z: Tensor) -> Any:
    """Of complex numbers: the real part gives the length, the imaginary one the angle."""
    if not z.is_complex():
        return NotImplemented
    real, imaginary = torch.view_as_real(z).unbind(-1)
    return polar(torch.exp(real), imaginary)


def angle(z: Tensor) -> Any:
    """Of complex numbers, signs of zero as in C: torch's exporter gives -π for what is real and negative."""
    if not z.is_complex():
        return NotImplemented
    real, imaginary = torch.view_as_real(z).unbind(-1)
    return torch.atan2(imaginary, real)


def polar(length: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from lengths and angles."""
    return torch.view_as_complex(torch.stack([length * torch.cos(angle), length * torch.sin(angle)], -1))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``aten::scaled_dot_product_attention`` without heads, or with more axes than torch's exporter takes."""
    if query.dim() == 4 or enable_gqa:
        return NotImplemented
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ value


def _is_flags(node: Any) -> bool:
    return bool(node.args[0].meta["val"].dtype == torch.bool)


def _over_all(node: Any) -> bool:
    return _is_flags(node) or len(node.args) < 2 or not node.args[1] or node.args[0].meta["val"].dim() == 0


def _without_heads(node: Any) -> bool:
    return int(node.args[0].meta["val"].dim()) != 4


def _is_complex(node: Any) -> bool:
    return bool(node.args[0].meta["val"].is_complex())


def _always(node: Any) -> bool:
    return True


def _projects(node: Any) -> bool:
    return recurrent.differ([state.meta["val"] for state in node.args[1]])


_EXTREMES = (_ATEN.max.default, _ATEN.min.default, _ATEN.max.dim, _ATEN.min.dim)
_MEANS = (_ATEN.adaptive_avg_pool1d.default, _ATEN.adaptive_avg_pool2d.default)
SUBSTITUTES: Mapping[Any, Substitute] = MappingProxyType(
    {
        _ATEN.unsqueeze.default: Substitute(unsqueeze, _is_complex),
        _ATEN.expand.default: Substitute(expand, _is_complex),
        _ATEN.select.int: Substitute(select, _is_complex),
        _ATEN.index.Tensor: Substitute(index, _is_complex),
        _ATEN.exp.default: Substitute(exp, _is_complex),
        _ATEN.angle.default: Substitute(angle, _is_complex),
        **{overload: Substitute(function, _always) for overload, function in places.ALWAYS.items()},
        _ATEN.im2col.default: Substitute(windows.unfolded, windows.is_small),
        _ATEN.as_strided.default: Substitute(strided.as_strided, strided.is_strided_otherwise),
        _ATEN.squeeze.dim: Substitute(strided.squeezed_one, strided.keeps_its_axis),
        _ATEN.squeeze.dims: Substitute(strided.squeezed, strided.keeps_an_axis),
        _ATEN.grid_sampler_3d.default: Substitute(volumes.sampled, _always),
        **{overload: Substitute(*pair) for overload, pair in smoothed.SMOOTHED.items()},
        **dict.fromkeys(_MEANS, Substitute(averages.adaptive_average_pool, averages.has_cells_of_its_own)),
        _ATEN.adaptive_avg_pool3d.default: Substitute(averages.adaptive_average_pool, _always),
        _ATEN.index_reduce.default: Substitute(scatters.index_reduced, _always),
        **{overload: Substitute(function, _always) for overload, function in mixed_types.ALIASES.items()},
        _ATEN.cross_entropy_loss.default: Substitute(losses.cross_entropy, losses.is_soft),
        _ATEN.einsum.default: Substitute(places.summed_ellipsis, places.sums_ellipsis),
        _ATEN.polar.default: Substitute(polar, _always),
        _ATEN._pdist_forward.default: Substitute(distances.pair_distances, _always),
        _ATEN.pdist.default: Substitute(distances.pair_distances, _always),
        _ATEN.repeat_interleave.self_Tensor: Substitute(places.repeat_interleave, places.has_known_size),
        _ATEN.index_put.default: Substitute(places.put_where, places.masks_inner_axes),
        **{overload: Substitute(*pair) for overload, pair in scatters.SCATTERS.items()},
        **{overload: Substitute(function, over_all.names_none) for overload, function in over_all.OVER_ALL.items()},
        _ATEN.cross.default: Substitute(places.cross, places.finds_its_axis),
        **{overload: Substitute(function, resized.has_factors) for overload, function in resized.BY_FACTOR.items()},
        **dict.fromkeys(resized.NEAREST, Substitute(resized.nearest, resized.rounds_otherwise)),
        _ATEN.avg_pool2d.default: Substitute(averages.average_pool_2d, averages.has_divisor),
        _ATEN.avg_pool3d.default: Substitute(averages.average_pool_3d, averages.has_divisor),
        _ATEN.cdist.default: Substitute(distances.distances, distances.by_differences),
        _ATEN.special_log_ndtr.default: Substitute(special.log_normal_cdf, _always),
        _ATEN.logcumsumexp.default: Substitute(scans.logcumsumexp, _always),
        _ATEN.amax.default: Substitute(places.extreme_of_all(torch.amax), _over_all),
        _ATEN.amin.default: Substitute(places.extreme_of_all(torch.amin), _over_all),
        **{overload: Substitute(places.extreme_flag(overload), _is_flags) for overload in _EXTREMES},
        _ATEN.sort.default: Substitute(places.sort_flags, _is_flags),
        _ATEN.conv1d.default: Substitute(convolution_1d, has_dynamic_groups),
        _ATEN.conv2d.default: Substitute(convolution, has_dynamic_groups),
        **{overload: Substitute(*pair) for overload, pair in maximum_pools.POOLS.items()},
        _ATEN.embedding_bag.padding_idx: Substitute(bags.even_bags, bags.are_even),
        _ATEN.embedding_bag.default: Substitute(bags.even_bags, bags.are_even),
        _ATEN.scaled_dot_product_attention.default: Substitute(attention, _without_heads),
        _ATEN.lstm.input: Substitute(recurrent.projected_lstm, _projects),
    }
)

WIDER: Mapping[Any, Substitute] = MappingProxyType(
    {
        _ATEN.embedding_bag.padding_idx: Substitute(bags.embedding_bag, bags.are_uneven),
        _ATEN.embedding_bag.default: Substitute(bags.embedding_bag, bags.are_uneven),
        **dict.fromkeys(maximum_pools.POOLS, Substitute(maximum_pools.with_places, maximum_pools.reads_places)),
        _ATEN.einsum.default: Substitute(places.aligned_ellipsis, places.has_uneven_ellipsis),
    }
)
"""For operators that are among the others, in forms that those do not cover."""

_MIXED: Mapping[Any, Substitute] = MappingProxyType(
    {overload: Substitute(*pair) for overload, pair in mixed_types.MIXED.items()}
)
_RANKLESS: Mapping[Any, Substitute] = MappingProxyType(
    {overload: Substitute(function, rankless.is_rankless) for overload, function in rankless.RANKLESS.items()}
)
_ROUNDED: Mapping[Any, Substitute] = MappingProxyType(
    {overload: Substitute(function, rounded_down.rounds) for overload, function in rounded_down.ROUNDED_DOWN.items()}
)
_WHOLE: Mapping[Any, Substitute] = MappingProxyType(
    {overload: Substitute(function, whole_numbers.is_whole) for overload, function in whole_numbers.WHOLE.items()}
)
