"""Functions of TensorFlow that want more than arrays, for ``bench/tensorflow_functions.py``: each with its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Call = Callable[..., Any]
FLOATS, NUMBERS, ANY = ("float32",), ("float32", "int32"), ("float32", "int32", "bool")
ROWS, SEQUENCE, PICTURE, FILM = (3, 6), (3, 5, 4), (2, 9, 8, 3), (2, 4, 6, 5, 3)


@dataclass(frozen=True, slots=True)
class Case:
    """A function and its inputs: the shapes of the drawn ones, and what integers among them are below."""

    call: Call
    shapes: tuple[tuple[int, ...], ...] = (ROWS,)
    kinds: tuple[str, ...] = FLOATS
    below: Mapping[int, int] | None = None
    """Inputs that are int32 indices, by place, and their bound."""


def filters(*shape: int) -> Any:
    """Weights that are the same in every run."""
    return tf.constant(np.random.default_rng(3).standard_normal(shape).astype(np.float32) / 3)


def on(call: Call, *shapes: tuple[int, ...], kinds: tuple[str, ...] = FLOATS, **below: int) -> Case:
    """A case; ``i1=5`` says that input 1 holds indices below 5."""
    return Case(call, shapes or (ROWS,), kinds, {int(key[1:]): bound for key, bound in below.items()})


def cases() -> Iterator[tuple[str, Case]]:
    """Those of this file by name."""
    for part in (shapes(), indices(), sums(), pictures(), resizes(), windows()):
        yield from part.items()


def shapes() -> Mapping[str, Case]:
    """What moves elements and computes nothing."""
    s = SEQUENCE
    return {
        "reshape": on(lambda x: tf.reshape(x, [-1, 10]), s, kinds=ANY),
        "reshape_computed": on(lambda x: tf.reshape(x, [tf.shape(x)[0], -1]), s, kinds=ANY),
        "transpose": on(lambda x: tf.transpose(x, [2, 0, 1]), s, kinds=ANY),
        "expand_squeeze": on(lambda x: tf.squeeze(tf.expand_dims(x, 1), [1]), s, kinds=ANY),
        "reverse": on(lambda x: tf.reverse(x, [1, 2]), s, kinds=ANY),
        "roll": on(lambda x: tf.roll(x, [2, -1], [1, 2]), s, kinds=ANY),
        "roll_first": on(lambda x: tf.roll(x, 1, 0), s, kinds=ANY),
        "roll_by_input": on(lambda x, i: tf.roll(x, i[0], 1), s, (1,), i1=9),
        "tile": on(lambda x: tf.tile(x, [1, 2, 3]), s, kinds=ANY),
        "repeat": on(lambda x: tf.repeat(x, 3, 1), s, kinds=ANY),
        "repeat_each": on(lambda x: tf.repeat(x, [1, 0, 2, 3, 1], 1), s, kinds=ANY),
        "broadcast_to": on(lambda x: tf.broadcast_to(x[:, None], [tf.shape(x)[0], 7, 6]), kinds=ANY),
        "stack_unstack": on(lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], 2), s, kinds=ANY),
        "concat": on(lambda x, y: tf.concat([x, y, x], 1), s, s, kinds=ANY),
        "split": on(lambda x: tf.split(x, [1, 3, 1], 1), s, kinds=ANY),
        "strided_slice": on(lambda x: x[:, ::-2, tf.newaxis, ..., 1:-1], s, kinds=ANY),
        "slice_negative": on(lambda x: x[..., -3:, -1], s, kinds=ANY),
        "slice_by_input": on(lambda x, i: x[:, i[0] : i[0] + 2], s, (1,), i1=4),
        "slice_size_by_input": on(lambda x, i: x[:, : i[0] + 1], s, (1,), i1=4),
        "pad": on(lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3]], constant_values=2), s, kinds=NUMBERS),
        "pad_reflect": on(lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 3]], "REFLECT"), s, kinds=ANY),
        "pad_symmetric": on(lambda x: tf.pad(x, [[0, 0], [5, 2], [4, 3]], "SYMMETRIC"), s, kinds=ANY),
        "space_to_batch": on(lambda x: tf.space_to_batch(x, [3, 2], [[0, 0], [1, 1]]), PICTURE, kinds=ANY),
        "batch_to_space": on(lambda x: tf.batch_to_space(x, [2, 2], [[1, 0], [0, 1]]), (8, 5, 6, 3), kinds=ANY),
        "space_to_batch_nd": on(lambda x: tf.space_to_batch_nd(x, [2], [[0, 1]]), (3, 5, 4), kinds=ANY),
        "space_to_depth": on(lambda x: tf.nn.space_to_depth(x, 2), (2, 8, 6, 3), kinds=ANY),
        "depth_to_space": on(lambda x: tf.nn.depth_to_space(x, 2), (2, 4, 3, 8), kinds=ANY),
        "meshgrid": on(lambda x: tf.meshgrid(x[0], x[1], indexing="ij"), kinds=ANY),
        "linspace": on(lambda x: tf.linspace(x[:, 0], x[:, 1], 5, axis=1)),
        "range": on(lambda i: tf.range(i[0] + 2) * 3, (1,), kinds=("int32",)),
        "fill": on(lambda x: tf.fill([tf.shape(x)[0], 3], 2.5) + x[:, :3]),
        "eye": on(lambda x: tf.eye(6) * x[0]),
        "zeros_like": on(lambda x: (tf.zeros_like(x), tf.ones_like(x[:1])), kinds=ANY),
        "shape_of": on(lambda x: (tf.shape(x), tf.size(x), tf.rank(x)), s, kinds=ANY),
        "identity_n": on(lambda x, y: tf.identity_n([y, x]), kinds=ANY),
        "parallel_stack": on(lambda x: tf.stack([x, x * 2], 0), kinds=NUMBERS),
        "einsum": on(lambda x, y: tf.einsum("bij,bkj->bik", x, y), s, (3, 7, 4), kinds=NUMBERS),
        "einsum_ellipsis": on(lambda x, y: tf.einsum("...ij,jk->...ki", x, y), s, (4, 6)),
        "einsum_diagonal": on(lambda x: tf.einsum("bii->bi", x), (3, 4, 4)),
        "tensordot": on(lambda x, y: tf.tensordot(x, y, [[1, 2], [1, 0]]), s, (4, 5, 2), kinds=NUMBERS),
        "one_hot": on(lambda i: tf.one_hot(i, 5, 2.0, -1.0), (3, 4), i0=7),
        "one_hot_axis": on(lambda i: tf.one_hot(i - 1, 5, axis=1), (3, 4), i0=7),
        "sequence_mask": on(lambda i: tf.sequence_mask(i, 6), (3, 2), i0=9),
        "extract_volume_patches": on(
            lambda x: tf.raw_ops.ExtractVolumePatches(
                input=x, ksizes=[1, 2, 2, 2, 1], strides=[1, 1, 2, 1, 1], padding="VALID"), FILM),
        "bitcast": on(lambda x: tf.bitcast(x, tf.int32)),
        "cast": on(lambda x: [tf.cast(x, t) for t in (tf.int32, tf.int64, tf.bool, tf.float16)], kinds=ANY),
        "saturate_cast": on(lambda x: [tf.saturate_cast(x * 100, t) for t in (tf.uint8, tf.int8)], kinds=NUMBERS),
        "complex": on(lambda x, y: [tf.math.real(tf.complex(x, y) * tf.complex(y, x)), tf.abs(tf.complex(x, y)),
                                    tf.math.angle(tf.complex(x, y))]),
    }  # fmt: skip


def indices() -> Mapping[str, Case]:
    """Gathers, scatters, segments, sorting, searching."""
    s = SEQUENCE
    ids = tf.constant([0, 0, 1, 3, 3, 3])
    return {
        "gather": on(lambda x, i: tf.gather(x, i, axis=1), s, (4,), kinds=ANY, i1=5),
        "gather_first": on(tf.gather, (5, 4), (2, 3), kinds=ANY, i1=5),
        "gather_batch": on(lambda x, i: tf.gather(x, i, axis=1, batch_dims=1), s, (3, 2), kinds=ANY, i1=5),
        "gather_batch_last": on(lambda x, i: tf.gather(x, i, axis=2, batch_dims=1), s, (3, 2), i1=4),
        "gather_nd": on(tf.gather_nd, (4, 4, 2), (5, 2), kinds=ANY, i1=4),
        "gather_nd_batch": on(lambda x, i: tf.gather_nd(x, i, batch_dims=1), (3, 4, 4), (3, 5, 2), i1=4),
        "take_along_axis": on(lambda x, i: tf.experimental.numpy.take_along_axis(x, i, 1), (3, 5), (3, 5), i1=5),
        "embedding_lookup": on(lambda i: tf.nn.embedding_lookup(filters(7, 4), i), (3, 5), i0=7),
        "embedding_sparse": on(lambda x, i: tf.nn.embedding_lookup(x, i, max_norm=1.0), (7, 4), (3, 2), i1=7),
        "scatter_nd": on(lambda x, i: tf.scatter_nd(i, x, [6, 4]), (5, 4), (5, 1), kinds=NUMBERS, i1=6),
        "scatter_nd_deep": on(lambda x, i: tf.scatter_nd(i, x, [6, 4]), (5,), (5, 2), kinds=NUMBERS, i1=4),
        "scatter_add": on(tf.tensor_scatter_nd_add, (6, 4), (5, 1), (5, 4), kinds=NUMBERS, i1=6),
        "scatter_sub": on(tf.tensor_scatter_nd_sub, (6, 4), (5, 1), (5, 4), kinds=NUMBERS, i1=6),
        "scatter_max": on(tf.tensor_scatter_nd_max, (6, 4), (5, 1), (5, 4), kinds=NUMBERS, i1=6),
        "scatter_min": on(tf.tensor_scatter_nd_min, (6, 4), (5, 1), (5, 4), kinds=NUMBERS, i1=6),
        "scatter_update": on(lambda x, y: tf.tensor_scatter_nd_update(x, [[4], [1]], y), (6, 4), (2, 4), kinds=ANY),
        "segment_sum": on(lambda x: tf.math.segment_sum(x, ids), (6, 3), kinds=NUMBERS),
        "segment_mean": on(lambda x: tf.math.segment_mean(x, ids), (6, 3)),
        "segment_max": on(lambda x: tf.math.segment_max(x, ids), (6, 3), kinds=NUMBERS),
        "segment_min": on(lambda x: tf.math.segment_min(x, ids), (6, 3), kinds=NUMBERS),
        "segment_prod": on(lambda x: tf.math.segment_prod(x, ids), (6, 3), kinds=NUMBERS),
        "unsorted_sum": on(lambda x, i: tf.math.unsorted_segment_sum(x, i - 1, 5), (6, 3), (6,), kinds=NUMBERS, i1=6),
        "unsorted_max": on(lambda x, i: tf.math.unsorted_segment_max(x, i, 5), (6, 3), (6,), kinds=NUMBERS, i1=5),
        "unsorted_min": on(lambda x, i: tf.math.unsorted_segment_min(x, i, 5), (6, 3), (6,), kinds=NUMBERS, i1=5),
        "unsorted_prod": on(lambda x, i: tf.math.unsorted_segment_prod(x, i, 5), (6, 3), (6,), kinds=NUMBERS, i1=5),
        "unsorted_mean": on(lambda x, i: tf.math.unsorted_segment_mean(x, i, 5), (6, 3), (6,), i1=5),
        "unsorted_sqrt_n": on(lambda x, i: tf.math.unsorted_segment_sqrt_n(x, i, 5), (6, 3), (6,), i1=5),
        "sparse_segment_sum": on(lambda x: tf.sparse.segment_sum(x, [0, 2, 1], [0, 0, 2]), (6, 3)),
        "sparse_segment_mean": on(lambda x: tf.sparse.segment_mean(x, [0, 2, 1], [0, 0, 2]), (6, 3)),
        "sparse_to_dense": on(lambda x: tf.sparse.to_dense(tf.SparseTensor([[0, 1], [2, 3]], x[0, :2], [4, 5]))),
        "from_dense": on(lambda x: tf.sparse.to_dense(tf.sparse.from_dense(x))),
        "sparse_matmul": on(lambda x: tf.sparse.sparse_dense_matmul(
            tf.SparseTensor([[0, 1], [2, 3]], [2.0, 3.0], [4, 5]), x), (5, 3)),
        "sort": on(tf.sort, s, kinds=NUMBERS),
        "sort_down_axis": on(lambda x: tf.sort(x, axis=1, direction="DESCENDING"), s, kinds=NUMBERS),
        "argsort": on(lambda x: tf.argsort(x, stable=True), s, kinds=NUMBERS),
        "argsort_down": on(lambda x: tf.argsort(x, axis=1, direction="DESCENDING", stable=True), s, kinds=NUMBERS),
        "top_k": on(lambda x: tf.math.top_k(x, 3), s, kinds=NUMBERS),
        "top_k_by_input": on(lambda x, i: tf.math.top_k(x, i[0] + 1), s, (1,), i1=3),
        "in_top_k": on(lambda x, i: tf.math.in_top_k(i, x, 2), (4, 5), (4,), i1=5),
        "nth_element": on(lambda x: tf.raw_ops.NthElement(input=x, n=2), s),
        "nth_element_reverse": on(lambda x: tf.raw_ops.NthElement(input=x, n=1, reverse=True), s),
        "argmax": on(lambda x: tf.argmax(x, 1), s, kinds=NUMBERS),
        "argmin_int32": on(lambda x: tf.argmin(x, 2, tf.int32), s, kinds=NUMBERS),
        "searchsorted": on(lambda x: tf.searchsorted([-1.0, 0.0, 0.0, 2.5], x[0])),
        "searchsorted_right": on(lambda x: tf.searchsorted(tf.sort(x), x[:, :2], "right")),
        "unique": on(lambda x: tf.unique(x[0]), kinds=NUMBERS),
        "unique_counts": on(lambda x: tf.unique_with_counts(x[0] // 2), kinds=NUMBERS),
        "where_places": on(lambda x: tf.where(x > 0), kinds=NUMBERS),
        "where": on(lambda x, y: tf.where(x > y, x, y * 2), kinds=NUMBERS),
        "where_broadcast": on(lambda x, y: tf.where(x[:, :1] > 0, x, y), kinds=NUMBERS),
        "boolean_mask": on(lambda x: tf.boolean_mask(x, x[:, 0] > 0), kinds=NUMBERS),
        "boolean_mask_elements": on(lambda x: tf.boolean_mask(x, x > 0), kinds=NUMBERS),
        "dynamic_partition": on(lambda x, i: tf.dynamic_partition(x, i, 3), (6, 3), (6,), i1=3),
        "dynamic_stitch": on(lambda x, y: tf.dynamic_stitch([[0, 2, 4], [1, 3, 2]], [x, y]), kinds=NUMBERS),
        "invert_permutation": on(lambda x: tf.math.invert_permutation(tf.argsort(x[0]))),
        "setdiff": on(lambda x, y: tf.raw_ops.ListDiff(x=x[0], y=y[0]), kinds=("int32",)),
        "bincount": on(lambda i: tf.math.bincount(i, minlength=9, maxlength=9), (7,), i0=12),
        "bincount_axis": on(lambda i: tf.math.bincount(i, minlength=9, maxlength=9, axis=-1), (3, 7), i0=12),
        "bincount_binary": on(lambda i: tf.math.bincount(i, minlength=9, maxlength=9, axis=-1, binary_output=True),
                              (3, 7), i0=9),
        "bincount_weights": on(lambda x, i: tf.math.bincount(i, x, minlength=9, maxlength=9), (7,), (7,), i1=9),
        "bincount_open": on(tf.math.bincount, (7,), i0=12),
        "histogram_fixed": on(lambda x: tf.histogram_fixed_width(x, [-1.0, 2.0], 5)),
        "bucketize": on(lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.0, 2.5]), kinds=NUMBERS),
        "confusion_matrix": on(lambda i, j: tf.math.confusion_matrix(i, j, 5), (8,), (8,), i0=5, i1=5),
        "ensure_shape": on(lambda x: tf.ensure_shape(x, [None, 6]), kinds=ANY),
        "reverse_sequence": on(lambda x, i: tf.reverse_sequence(x, i, 1), s, (3,), kinds=ANY, i1=6),
        "edit_matrix_band": on(lambda x: tf.linalg.band_part(x, 1, 2), s, kinds=ANY),
        "lookup_by_case": on(lambda x: tf.gather(tf.constant([5, 3, 9, 1]), tf.argmax(x, 1) % 4)),
    }  # fmt: skip


def sums() -> Mapping[str, Case]:
    """Reductions and running sums."""
    s, found = SEQUENCE, dict[str, Case]()
    for name in ("sum", "mean", "prod", "max", "min", "variance", "std", "logsumexp", "euclidean_norm"):
        call = getattr(tf.math, f"reduce_{name}")
        kinds = FLOATS if name in ("variance", "std", "logsumexp") else NUMBERS
        found[f"reduce_{name}_all"] = on(call, s, kinds=kinds)
        found[f"reduce_{name}_axes"] = on(lambda x, c=call: c(x, [0, -1], keepdims=True), s, kinds=kinds)
        found[f"reduce_{name}_1"] = on(lambda x, c=call: c(x, 1), s, kinds=kinds)
    for name in ("any", "all"):
        call = getattr(tf.math, f"reduce_{name}")
        found[f"reduce_{name}"] = on(lambda x, c=call: c(x > 0, 1), s, kinds=NUMBERS)
    for name in ("cumsum", "cumprod", "cumulative_logsumexp"):
        call, kinds = getattr(tf.math, name), FLOATS if "log" in name else NUMBERS
        found[name] = on(lambda x, c=call: c(x, 1), s, kinds=kinds)
        found[f"{name}_exclusive_reverse"] = on(lambda x, c=call: c(x, 2, exclusive=True, reverse=True), s, kinds=kinds)
        found[f"{name}_first"] = on(lambda x, c=call: c(x, 0, reverse=True), s, kinds=kinds)
    more = {
        "moments": on(lambda x: tf.nn.moments(x, [1]), s),
        "moments_keep": on(lambda x: tf.nn.moments(x, [0, 2], keepdims=True), s),
        "weighted_moments": on(lambda x, y: tf.nn.weighted_moments(x, [1], tf.abs(y) + 0.1), s, s),
        "count_nonzero": on(lambda x: tf.math.count_nonzero(x, 1), s, kinds=NUMBERS),
        "norm": on(lambda x: [tf.norm(x, axis=1), tf.norm(x, 1, axis=2), tf.norm(x, np.inf, axis=2)], s),
        "l2_normalize": on(lambda x: tf.math.l2_normalize(x, 1), s),
        "clip_by_norm": on(lambda x: tf.clip_by_norm(x, 2.0, [1]), s),
        "clip_by_global_norm": on(lambda x: tf.clip_by_global_norm([x, x * 2], 2.0)[0], s),
        "clip_by_value": on(lambda x: tf.clip_by_value(x, -1, 2), s, kinds=NUMBERS),
        "zero_fraction": on(tf.math.zero_fraction, s),
        "accumulate_n": on(lambda x, y: tf.math.accumulate_n([x, y, x]), kinds=NUMBERS),
        "add_n": on(lambda x, y: tf.add_n([x, y, x]), kinds=NUMBERS),
        "polyval": on(lambda x: tf.math.polyval([2.0, -1.0, 0.5], x)),
        "approx_max_k": on(lambda x: tf.math.approx_max_k(x, 2), s),
        "scan": on(lambda x: tf.scan(lambda a, b: a * 0.5 + b, x, tf.zeros(4)), (5, 4)),
        "foldl": on(lambda x: tf.foldl(lambda a, b: a * 0.5 + b, x), (5, 4)),
        "map_fn": on(lambda x: tf.map_fn(lambda r: r * tf.reduce_sum(r), x), (5, 4)),
        "vectorized_map": on(lambda x: tf.vectorized_map(lambda r: r * tf.reduce_sum(r), x), (5, 4)),
    }
    return {**found, **more}


def pictures() -> Mapping[str, Case]:
    """tf.image."""
    p, u = PICTURE, lambda x: tf.clip_by_value(x * 0.3 + 0.5, 0, 1)
    image, boxes = tf.image, tf.constant([[0.0, 0.1, 0.8, 0.9], [0.5, 0.9, 0.2, 0.1], [-0.2, 0.0, 1.3, 1.0]])
    return {
        "adjust_brightness": on(lambda x: image.adjust_brightness(x, 0.2), p),
        "adjust_contrast": on(lambda x: image.adjust_contrast(x, 1.7), p),
        "adjust_gamma": on(lambda x: image.adjust_gamma(u(x), 0.7, 1.1), p),
        "adjust_hue": on(lambda x: image.adjust_hue(u(x), 0.2), p),
        "adjust_hue_raw": on(lambda x: image.adjust_hue(x, -0.3), p),
        "adjust_saturation": on(lambda x: image.adjust_saturation(u(x), 0.4), p),
        "adjust_saturation_up": on(lambda x: image.adjust_saturation(u(x), 2.5), p),
        "adjust_saturation_raw": on(lambda x: image.adjust_saturation(x, 0.4), p),
        "rgb_to_hsv": on(lambda x: image.rgb_to_hsv(u(x)), p),
        "hsv_to_rgb": on(lambda x: image.hsv_to_rgb(u(x)), p),
        "rgb_to_yiq": on(image.rgb_to_yiq, p),
        "rgb_to_yuv": on(image.rgb_to_yuv, p),
        "yiq_to_rgb": on(image.yiq_to_rgb, p),
        "yuv_to_rgb": on(image.yuv_to_rgb, p),
        "rgb_to_grayscale": on(image.rgb_to_grayscale, p),
        "grayscale_to_rgb": on(lambda x: image.grayscale_to_rgb(x[..., :1]), p),
        "convert_image_dtype": on(lambda x: image.convert_image_dtype(u(x), tf.uint8), p),
        "central_crop": on(lambda x: image.central_crop(x, 0.5), p),
        "crop_to_bounding_box": on(lambda x: image.crop_to_bounding_box(x, 1, 2, 5, 4), p),
        "pad_to_bounding_box": on(lambda x: image.pad_to_bounding_box(x, 1, 2, 12, 13), p),
        "extract_glimpse": on(lambda x: image.extract_glimpse(x, [4, 5], [[0.1, -0.2], [0.0, 0.5]], noise="zero"), p),
        "flip_left_right": on(image.flip_left_right, p),
        "flip_up_down": on(image.flip_up_down, p),
        "rot90": on(lambda x: image.rot90(x, 3), p),
        "transpose_image": on(image.transpose, p),
        "image_gradients": on(image.image_gradients, p),
        "sobel_edges": on(image.sobel_edges, p),
        "total_variation": on(image.total_variation, p),
        "per_image_standardization": on(image.per_image_standardization, p),
        "psnr": on(lambda x, y: image.psnr(u(x), u(y), 1.0), p, p),
        "ssim": on(lambda x, y: image.ssim(u(x), u(y), 1.0), (2, 14, 13, 3), (2, 14, 13, 3)),
        "ssim_multiscale": on(lambda x, y: image.ssim_multiscale(
            u(x), u(y), 1.0, power_factors=(0.5, 0.5), filter_size=5), (2, 14, 13, 1), (2, 14, 13, 1)),
        "extract_patches": on(lambda x: image.extract_patches(x, [1, 3, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"), p),
        "extract_patches_dilated": on(
            lambda x: image.extract_patches(x, [1, 3, 2, 1], [1, 1, 1, 1], [1, 2, 2, 1], "VALID"), p),
        "crop_and_resize": on(lambda x: image.crop_and_resize(x, boxes, [0, 1, 0], [4, 5]), p),
        "crop_and_resize_nearest": on(lambda x: image.crop_and_resize(x, boxes, [0, 1, 0], [4, 5], "nearest"), p),
        "crop_and_resize_outside": on(lambda x: image.crop_and_resize(
            x, boxes, [0, 1, 0], [4, 5], extrapolation_value=-3.0), p),
        "crop_and_resize_boxes": on(lambda x, y: image.crop_and_resize(x, u(y), [0, 1, 0], [4, 5]), p, (3, 4)),
        "crop_and_resize_one": on(lambda x, y: image.crop_and_resize(x, u(y), [0, 1, 0], [1, 3]), p, (3, 4)),
        "draw_bounding_boxes": on(lambda x: image.draw_bounding_boxes(
            u(x), boxes[None, :2] * tf.ones([tf.shape(x)[0], 1, 1]), [[1.0, 0.0, 0.5]]), p),
        "nms": on(lambda x: image.non_max_suppression(u(x), x[:, 0], 4, 0.4), (12, 4)),
        "nms_score": on(lambda x: image.non_max_suppression(u(x), x[:, 0], 4, 0.4, 0.5), (12, 4)),
        "nms_padded": on(lambda x: image.non_max_suppression_padded(
            u(x), x[:, 0], 4, 0.4, 0.5, pad_to_max_output_size=True), (12, 4)),
        "nms_soft": on(lambda x: image.non_max_suppression_with_scores(u(x), x[:, 0], 4, 0.4, 0.1, 0.5), (12, 4)),
        "nms_overlaps": on(lambda x: image.non_max_suppression_overlaps(u(x), x[:, 0], 4, 0.4), (7, 7)),
        "nms_combined": on(lambda x, y: image.combined_non_max_suppression(
            u(x)[:, :, None], y, 3, 5, 0.4, 0.2), (2, 8, 4), (2, 8, 3)),
        "projective": on(lambda x: tf.raw_ops.ImageProjectiveTransformV3(
            images=x, transforms=[[0.9, 0.1, 0.5, -0.1, 1.0, 0.3, 0.0, 0.0]], output_shape=[7, 6], fill_value=0.0,
            interpolation="BILINEAR"), p),
    }  # fmt: skip


def resizes() -> Mapping[str, Case]:
    """tf.image.resize by each method, up, down, and to a size that is computed."""
    found = dict[str, Case]()
    for method in ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"):
        for title, size in (("up", (13, 11)), ("down", (5, 3)), ("double", (18, 16))):
            found[f"resize_{method}_{title}"] = on(lambda x, s=size, m=method: tf.image.resize(x, s, m), PICTURE)
        found[f"resize_{method}_antialias"] = on(
            lambda x, m=method: tf.image.resize(x, (4, 3), m, antialias=True), PICTURE
        )
    old = tf.compat.v1.image
    for method in ("bilinear", "nearest_neighbor", "bicubic"):
        for corners in (True, False):
            found[f"old_resize_{method}_{'corners' if corners else 'plain'}"] = on(
                lambda x, m=method, c=corners: getattr(old, f"resize_{m}")(x, (13, 5), align_corners=c), PICTURE
            )
    more = {
        "resize_of_size": on(lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2), PICTURE),
        "resize_of_size_nearest": on(lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2, "nearest"), PICTURE),
        "resize_with_pad": on(lambda x: tf.image.resize_with_pad(x, 12, 14), PICTURE),
        "resize_crop_or_pad": on(lambda x: tf.image.resize_with_crop_or_pad(x, 12, 5), PICTURE),
        "resize_kept_ratio": on(lambda x: tf.image.resize(x, (12, 14), preserve_aspect_ratio=True), PICTURE),
    }
    return {**found, **more}


def windows() -> Mapping[str, Case]:
    """Convolutions, pooling, normalization."""
    p, n = PICTURE, tf.nn
    return {
        "conv1d": on(lambda x: n.conv1d(x, filters(3, 4, 5), 2, "SAME"), (3, 9, 4)),
        "conv2d": on(lambda x: n.conv2d(x, filters(3, 2, 3, 5), [1, 2], "SAME"), p),
        "conv2d_explicit": on(
            lambda x: n.conv2d(x, filters(3, 2, 3, 5), 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), p),
        "conv2d_dilated": on(lambda x: n.conv2d(x, filters(3, 2, 3, 5), 1, "SAME", dilations=[2, 1]), p),
        "conv2d_groups": on(lambda x: n.conv2d(x, filters(3, 2, 2, 6), 1, "VALID"), (2, 9, 8, 4)),
        "conv2d_of_filters": on(lambda x, y: n.conv2d(x, y, 1, "SAME"), p, (3, 3, 3, 4)),
        "conv2d_transpose": on(
            lambda x: n.conv2d_transpose(x, filters(3, 3, 5, 3), [tf.shape(x)[0], 18, 16, 5], 2), p),
        "conv2d_transpose_valid": on(
            lambda x: n.conv2d_transpose(x, filters(3, 2, 5, 3), [tf.shape(x)[0], 19, 17, 5], 2, "VALID"), p),
        "conv1d_transpose": on(
            lambda x: n.conv1d_transpose(x, filters(3, 5, 4), [tf.shape(x)[0], 18, 5], 2), (3, 9, 4)),
        "conv3d": on(lambda x: n.conv3d(x, filters(2, 3, 3, 3, 4), [1, 1, 2, 1, 1], "SAME"), FILM),
        "conv3d_transpose": on(
            lambda x: n.conv3d_transpose(x, filters(2, 3, 3, 4, 3), [tf.shape(x)[0], 8, 12, 10, 4], 2), FILM),
        "depthwise_conv2d": on(lambda x: n.depthwise_conv2d(x, filters(3, 2, 3, 2), [1, 2, 2, 1], "SAME"), p),
        "depthwise_dilated": on(
            lambda x: n.depthwise_conv2d(x, filters(3, 2, 3, 2), [1, 1, 1, 1], "VALID", dilations=[2, 2]), p),
        "separable_conv2d": on(
            lambda x: n.separable_conv2d(x, filters(3, 2, 3, 2), filters(1, 1, 6, 4), [1, 1, 1, 1], "SAME"), p),
        "atrous_conv2d": on(lambda x: n.atrous_conv2d(x, filters(3, 2, 3, 5), 2, "SAME"), p),
        "convolution": on(lambda x: n.convolution(x, filters(3, 2, 3, 5), 1, "VALID", dilations=[1, 2]), p),
        "dilation2d": on(lambda x: n.dilation2d(x, filters(3, 2, 3), [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]), p),
        "dilation2d_strided": on(
            lambda x: n.dilation2d(x, filters(3, 2, 3), [1, 2, 2, 1], "VALID", "NHWC", [1, 2, 1, 1]), p),
        "erosion2d": on(lambda x: n.erosion2d(x, filters(3, 2, 3), [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]), p),
        "max_pool": on(lambda x: n.max_pool(x, [3, 2], 2, "SAME"), p),
        "max_pool_explicit": on(lambda x: n.max_pool2d(x, 3, 2, [[0, 0], [1, 0], [1, 1], [0, 0]]), p),
        "avg_pool": on(lambda x: n.avg_pool(x, [3, 2], 2, "SAME"), p),
        "max_pool1d": on(lambda x: n.max_pool1d(x, 3, 2, "SAME"), (3, 9, 4)),
        "avg_pool1d": on(lambda x: n.avg_pool1d(x, 3, 2, "VALID"), (3, 9, 4)),
        "max_pool3d": on(lambda x: n.max_pool3d(x, 2, 2, "SAME"), FILM),
        "avg_pool3d": on(lambda x: n.avg_pool3d(x, 2, 2, "SAME"), FILM),
        "max_pool_argmax": on(lambda x: n.max_pool_with_argmax(x, 2, 2, "VALID"), p),
        "max_pool_argmax_same": on(
            lambda x: n.max_pool_with_argmax(x, 3, 2, "SAME", include_batch_in_index=True), p),
        "pool": on(lambda x: n.pool(x, [2, 3], "AVG", dilations=[2, 1]), p),
        "fractional_max_pool": on(lambda x: n.fractional_max_pool(x, [1, 1.5, 1.5, 1], seed=3)[0], p),
        "local_response_normalization": on(lambda x: n.local_response_normalization(x, 1, 1.5, 0.1, 0.6), p),
        "batch_normalization": on(lambda x: n.batch_normalization(x, x[0, 0, 0], 1.5, 0.2, 1.1, 1e-3), p),
        "fused_batch_norm": on(lambda x: tf.compat.v1.nn.fused_batch_norm(
            x, [1.0, 2.0, 0.5], [0.0, 1.0, 2.0], [0.1, 0.2, 0.3], [1.0, 0.5, 2.0], is_training=False)[0], p),
        "fused_batch_norm_training": on(
            lambda x: tf.compat.v1.nn.fused_batch_norm(x, [1.0, 2.0, 0.5], [0.0, 1.0, 2.0])[0], p),
        "bias_add": on(lambda x: n.bias_add(x, [1.0, 2.0, 0.5]), p),
        "with_space_to_batch": on(lambda x: n.with_space_to_batch(
            x, 2, "VALID", lambda y, num_spatial_dims, padding: n.max_pool2d(y, 2, 1, padding), [2, 2]), p),
    }  # fmt: skip
