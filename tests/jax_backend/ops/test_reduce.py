"""What a table of rows cannot say of sums: few slices of the outermost axis, too large for a table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ir
from jax_backend.lowering import lowering_of
from tests.opcase import build, t

LONG = 2**14


@pytest.mark.parametrize("num_rows", [2, 16, 17])
@pytest.mark.parametrize("dtype", [ir.F32, ir.F16, ir.BF16, ir.I8, ir.I32, ir.I64])
def test_a_sum_of_few_long_rows(num_rows: int, dtype: ir.DType) -> None:
    # Small integers: exact in every dtype, in any order.
    values = np.random.default_rng(0).integers(-7, 8, (num_rows, LONG))
    x, out = t(dtype, values), t(dtype, values.sum(0, keepdims=True))
    op = build(ir.SumDim, [x], [out], {"axis": 0})
    got = jax.jit(lambda a: lowering_of(ir.SumDim)(op, a))(jnp.asarray(x.array))
    assert got.dtype == x.array.dtype
    np.testing.assert_array_equal(np.asarray(got, np.int64), values.sum(0, keepdims=True))


def test_halves_of_few_long_rows_round_once() -> None:
    values = np.broadcast_to(np.array([[2048.0], [1.0], [1.0]]), (3, LONG))  # 2048 + 1 is 2048 in float16
    x, out = t(ir.F16, values), t(ir.F16, values[:1])
    op = build(ir.SumDim, [x], [out], {"axis": 0})
    got = jax.jit(lambda a: lowering_of(ir.SumDim)(op, a))(jnp.asarray(x.array))
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.full((1, LONG), 2050.0))
