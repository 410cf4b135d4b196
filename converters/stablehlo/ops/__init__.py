"""Every handler of the importer, composed."""

from convertkit.converters.stablehlo.ops.arithmetic import arithmetic
from convertkit.converters.stablehlo.ops.basics import basics
from convertkit.converters.stablehlo.ops.bitwise import bitwise
from convertkit.converters.stablehlo.ops.complex import complexes
from convertkit.converters.stablehlo.ops.control import control
from convertkit.converters.stablehlo.ops.convert import conversions
from convertkit.converters.stablehlo.ops.convolution import convolutions
from convertkit.converters.stablehlo.ops.custom import custom
from convertkit.converters.stablehlo.ops.dot import products
from convertkit.converters.stablehlo.ops.fourier import fourier
from convertkit.converters.stablehlo.ops.gather import gathers
from convertkit.converters.stablehlo.ops.linear import linear
from convertkit.converters.stablehlo.ops.movement import movement
from convertkit.converters.stablehlo.ops.quantized import quantized
from convertkit.converters.stablehlo.ops.random import random
from convertkit.converters.stablehlo.ops.reduce import reductions
from convertkit.converters.stablehlo.ops.scatter import scatters
from convertkit.converters.stablehlo.ops.sort import sorting
from convertkit.converters.stablehlo.ops.unary import unary
from convertkit.converters.stablehlo.ops.window import windows

HANDLERS = (
    arithmetic
    | basics
    | bitwise
    | conversions
    | custom
    | movement
    | reductions
    | unary
    | control
    | products
    | gathers
    | scatters
    | sorting
    | windows
    | convolutions
    | complexes
    | fourier
    | linear
    | random
    | quantized
)
