"""``--input`` against the interface of a model whose sizes are known."""

import pytest

from convertkit.artifact import TensorSpec
from convertkit.errors import UsageError
from convertkit.onnx.inputs import with_input_options
from convertkit.recipe import InputSpec


@pytest.mark.parametrize(
    ("dim", "given", "named"),
    [("batch", "N", "batch"), ("ids_0", "N", "ids_0"), ("rows", "rows", "rows"), ("rows", 4, 4), (3, 3, 3)],
)
def test_a_size_without_a_name_of_its_own_may_be_called_anything(dim, given, named):
    (spec,) = with_input_options([TensorSpec("ids", (dim, 9), "int64")], [InputSpec("ids", (given, 9))])
    assert spec.shape == (named, 9)


@pytest.mark.parametrize(("dim", "given"), [("rows", "N"), (3, "N"), (3, 4), ("mask_0", "N")])
def test_a_size_that_the_model_names_or_fixes_is_no_other(dim, given):
    with pytest.raises(UsageError, match="the model takes"):
        with_input_options([TensorSpec("ids", (dim, 9), "int64")], [InputSpec("ids", (given, 9))])


def test_a_type_and_a_range_without_a_shape_keep_the_shape() -> None:
    option = InputSpec("ids", (), "int64", (0, 7))
    (spec,) = with_input_options([TensorSpec("ids", ("batch", 9), "int64")], [option])
    assert (spec.shape, spec.value_range) == (("batch", 9), (0, 7))
