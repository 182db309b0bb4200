"""Large convolutions: XLA itself has to multiply the zeros of padding, which `ops.conv` adds nothing for."""

import jax
import numpy as np
import pytest

import ir
from jax_backend.dtypes import jax_dtype
from jax_backend.ops.conv import LARGE, conv, conv_weight_backward

KINDS = {
    1: (ir.Conv1d, ir.Conv1dWeightBackward, ir.Conv1dOptions, (2**13,)),
    2: (ir.Conv2d, ir.Conv2dWeightBackward, ir.Conv2dOptions, (64, 64)),
    3: (ir.Conv3d, ir.Conv3dWeightBackward, ir.Conv3dOptions, (16, 16, 32)),
}
CASES = [
    pytest.param(dims, groups, dtype, id=f"{dims}d-{groups}-{dtype.short}")
    for dims, groups, dtype in [
        (1, 1, ir.F32),
        (1, 4, ir.BF16),
        (2, 1, ir.F32),
        (2, 4, ir.F32),
        (2, 16, ir.F32),
        (2, 1, ir.BF16),
        (2, 1, ir.F16),
        (3, 1, ir.F32),
    ]
]


def edge(size: tuple[int, ...]) -> np.ndarray:
    """Where the first tap of a window of 3, padded by 1, lies in the padding."""
    return np.any([places == 0 for places in np.indices(size)], axis=0)


@pytest.mark.parametrize(("dims", "groups", "dtype"), CASES)
def test_an_infinity_that_meets_padding_is_nan(dims: int, groups: int, dtype: ir.DType) -> None:
    forward, backward, options, size = KINDS[dims]
    channels, batch = 16, max(1, LARGE // (16 * int(np.prod(size))))
    o = options((1,) * dims, ((1, 1),) * dims, (1,) * dims, groups)
    numbers = np.random.default_rng(0)
    x = jax.numpy.asarray(numbers.normal(size=(batch, channels, *size)), jax_dtype(dtype))
    weight, grad = numbers.normal(size=(channels, channels // groups, *(3,) * dims)), numbers.normal(size=x.shape)
    weight[3, 0, *(0,) * dims] = grad[0, 5, *(0,) * dims] = np.inf
    shapes = [ir.tensor(n, shape, dtype) for n, shape in enumerate([x.shape, weight.shape, x.shape])]
    assert x.size >= LARGE

    op = forward(shapes[0], shapes[1], None, o, ir.tensor(9, x.shape, dtype, ir.NOT_INIT))
    weight = jax.numpy.asarray(weight, jax_dtype(dtype))
    y = jax.jit(lambda x, w: conv(op, x, w, None))(x, weight)
    is_nan = np.isnan(np.asarray(y, np.float64))
    assert (is_nan[:, 3] == edge(size)).all()
    assert not is_nan[:, [*range(3), *range(4, channels)]].any()

    op = backward(*shapes, o, ir.tensor(9, weight.shape, dtype, ir.NOT_INIT))
    made = jax.jit(lambda x, w, g: conv_weight_backward(op, x, w, g))(
        x, weight, jax.numpy.asarray(grad, jax_dtype(dtype))
    )
    is_nan = np.isnan(np.asarray(made, np.float64))
    assert (is_nan[5] == edge((3,) * dims)).all()
    assert not is_nan[[*range(5), *range(6, channels)]].any()
