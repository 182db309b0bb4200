"""The precision of products: highest unless relaxed, in one place."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import ir
from ir import BF16, F16, F32, F64, FLEX32, I32
from ir.dtype import DType
from jax_backend.dtypes import jax_dtype
from jax_backend.lowering import lowering_of
from jax_backend.ops._shared import precision


def dot_of(dtype: DType) -> Any:
    """The parameters of the one product in the trace of a `Matmul` on tensors of `dtype`."""
    lhs, rhs, out = (ir.tensor(n, dims, dtype) for n, dims in enumerate([(2, 3), (3, 5), (2, 5)]))
    op = ir.Matmul(lhs, rhs, out)
    x, y = (jax.ShapeDtypeStruct(t.shape.dims, jax_dtype(dtype)) for t in (lhs, rhs))
    equations = jax.make_jaxpr(lambda x, y: lowering_of(ir.Matmul)(op, x, y))(x, y).eqns
    [dot] = [e for e in equations if e.primitive.name == "dot_general"]
    return dot.params


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=lambda d: d.short)
def test_products_have_the_highest_precision(dtype: DType) -> None:
    assert set(dot_of(dtype)["precision"]) == {lax.Precision.HIGHEST}


def test_flex32_takes_the_fast_path() -> None:
    assert set(dot_of(FLEX32)["precision"]) == {lax.Precision.DEFAULT}


def test_a_context_relaxes_it_and_ends() -> None:
    with precision(lax.Precision.DEFAULT):
        assert set(dot_of(F32)["precision"]) == {lax.Precision.DEFAULT}
    assert set(dot_of(F32)["precision"]) == {lax.Precision.HIGHEST}


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [(F16, jnp.float32), (BF16, jnp.float32), (F32, jnp.float32), (F64, jnp.float64), (I32, jnp.int32)],
    ids=lambda x: getattr(x, "short", None),
)
def test_halves_accumulate_in_f32(dtype: DType, accumulator: Any) -> None:
    assert dot_of(dtype)["preferred_element_type"] == accumulator
