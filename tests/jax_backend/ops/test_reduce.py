"""What a table of rows cannot say of reductions: long rows of the outermost axes, too large for a table."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ir
from ir.op import Op
from jax_backend.lowering import lowering_of
from tests.opcase import build, t

LONG = 2**14
SUMS: dict[type[Op], Callable[..., np.ndarray]] = {ir.SumDim: np.sum, ir.MaxDim: np.max, ir.MinDim: np.min}


def reduction(kind: type[Op], dtype: ir.DType, values: np.ndarray, want: np.ndarray, **static: Any) -> Any:
    op = build(kind, [t(dtype, values)], [t(dtype, want)], static)
    return lambda array: lowering_of(kind)(op, array)


@pytest.mark.parametrize("num_rows", [2, 16, 17, 18, 40])
@pytest.mark.parametrize("dtype", [ir.F32, ir.F16, ir.BF16, ir.I8, ir.I32, ir.I64])
@pytest.mark.parametrize("kind", list(SUMS))
def test_long_rows(kind: type[Op], num_rows: int, dtype: ir.DType) -> None:
    # Small integers: exact in every dtype, in any order; their sums stay within 127.
    values = np.random.default_rng(0).integers(-3, 4, (num_rows, LONG))
    want = SUMS[kind](values, axis=0, keepdims=True)
    x = t(dtype, values)
    got = jax.jit(reduction(kind, dtype, values, want, axis=0))(jnp.asarray(x.array))
    assert got.dtype == x.array.dtype
    np.testing.assert_array_equal(np.asarray(got, np.int64), want)


def test_long_rows_of_several_axes() -> None:
    values = np.random.default_rng(0).integers(-3, 4, (3, 7, 2, LONG // 2))
    want = values.sum((0, 1), keepdims=True)
    got = jax.jit(reduction(ir.SumDims, ir.F32, values, want, axes=(1, 0)))(values.astype(np.float32))
    np.testing.assert_array_equal(got, want)


def test_the_place_of_the_largest_in_long_rows() -> None:
    values = np.random.default_rng(0).integers(0, 9, (20, LONG)).astype(np.float32)
    values[7, 5] = np.nan
    x, want = t(ir.F32, values), t(ir.I32, np.argmax(values, 0)[None])
    op = build(ir.ArgMax, [x], [want], {"axis": 0})
    np.testing.assert_array_equal(jax.jit(lambda a: lowering_of(ir.ArgMax)(op, a))(values), want.array)


def test_halves_of_long_rows_round_once() -> None:
    values = np.broadcast_to(np.array([[2048.0], [1.0], [1.0]]), (3, LONG))  # 2048 + 1 is 2048 in float16
    got = jax.jit(reduction(ir.SumDim, ir.F16, values, values[:1], axis=0))(values.astype(np.float16))
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.full((1, LONG), 2050.0))


def test_long_rows_have_gradients() -> None:
    values = np.random.default_rng(0).normal(size=(20, LONG)).astype(np.float32)
    weight = np.random.default_rng(1).normal(size=(1, LONG)).astype(np.float32)
    for kind in (ir.SumDim, ir.MaxDim):
        function = reduction(kind, ir.F32, values, weight, axis=0)
        got = jax.jit(jax.grad(lambda a, f=function: jnp.sum(f(a) * weight)))(values)
        taken = 1 if kind is ir.SumDim else values == values.max(0)
        np.testing.assert_array_equal(got, np.broadcast_to(weight, values.shape) * taken)


@pytest.mark.parametrize(("platform", "is_reduced"), [("cpu", False), ("cuda", True), ("tpu", True)])
def test_only_cpus_combine_rows(platform: str, is_reduced: bool) -> None:
    values = np.zeros((4, LONG), np.float32)
    traced = jax.jit(reduction(ir.SumDim, ir.F32, values, values[:1], axis=0)).trace(values)
    assert ("stablehlo.reduce" in traced.lower(lowering_platforms=(platform,)).as_text()) is is_reduced
