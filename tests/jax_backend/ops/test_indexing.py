"""What a table of rows cannot say of indexing: gradients, and indices that no valid program has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ir
from ir.ops.indexing import IndexingUpdateOp
from jax_backend.lowering import lowering_of
from tests.opcase import build, t


def _scatter(update: str, x: np.ndarray, indices: np.ndarray, value: np.ndarray, dim: int) -> tuple[ir.Op, tuple]:
    tensors = [t(ir.F32, x), t(ir.I64, indices), t(ir.F32, value)]
    op = build(ir.Scatter, tensors, [tensors[0]], {"dim": dim, "update": IndexingUpdateOp(update)})
    return op, tuple(jnp.asarray(tensor.array) for tensor in tensors)


def test_the_gradient_of_an_assign_goes_to_what_is_left_and_to_what_was_written() -> None:
    # Values: burn-autodiff, the test of burn #4070.
    op, (x, indices, value) = _scatter(
        "Assign", np.arange(8).reshape(2, 4), np.array([[2, 0], [3, 1]]), np.array([[10, 20], [30, 40]]), dim=1
    )
    out, pull = jax.vjp(lambda x, v: lowering_of(ir.Scatter)(op, x, indices, v), x, value)
    dx, dv = pull(jnp.ones_like(out))
    np.testing.assert_array_equal(dx, [[0, 1, 0, 1], [1, 0, 1, 0]])
    np.testing.assert_array_equal(dv, [[1, 1], [1, 1]])


def test_an_overwritten_update_has_no_gradient() -> None:
    op, (x, indices, value) = _scatter("Assign", np.zeros(3), np.array([1, 1, 2]), np.array([5, 6, 7]), dim=0)
    out, pull = jax.vjp(lambda v: lowering_of(ir.Scatter)(op, x, indices, v), value)
    np.testing.assert_array_equal(out, [0, 6, 7])
    np.testing.assert_array_equal(pull(jnp.asarray([10, 20, 30], jnp.float32))[0], [0, 20, 30])


def test_every_added_update_has_the_gradient_of_its_place() -> None:
    op, (x, indices, value) = _scatter("Add", np.zeros(3), np.array([1, 1, 2]), np.array([5, 6, 7]), dim=0)
    _, pull = jax.vjp(lambda v: lowering_of(ir.Scatter)(op, x, indices, v), value)
    np.testing.assert_array_equal(pull(jnp.asarray([10, 20, 30], jnp.float32))[0], [20, 20, 30])


@pytest.mark.parametrize("update", [update.value for update in IndexingUpdateOp])
def test_an_index_out_of_range_writes_nothing(update: str) -> None:
    op, (x, indices, value) = _scatter(update, np.array([4, 5, 6]), np.array([-1, 3]), np.array([7, -8]), dim=0)
    np.testing.assert_array_equal(lowering_of(ir.Scatter)(op, x, indices, value), [4, 5, 6])


@pytest.mark.parametrize("index_dtype", [ir.I8, ir.I64])
def test_an_index_out_of_range_reads_the_nearest_element(index_dtype: ir.DType) -> None:
    x, row, out = t(ir.F32, [4, 5, 6]), t(index_dtype, [-1, 100]), t(ir.F32, [0, 0])
    nearest = [4, 6]
    select = build(ir.Select, [x, row], [out], {"dim": 0})
    gather = build(ir.Gather, [x, row], [out], {"dim": 0})
    np.testing.assert_array_equal(lowering_of(ir.Select)(select, jnp.asarray(x.array), jnp.asarray(row.array)), nearest)
    np.testing.assert_array_equal(lowering_of(ir.Gather)(gather, jnp.asarray(x.array), jnp.asarray(row.array)), nearest)
    column = t(index_dtype, [[-1], [100]])
    gather_nd = build(ir.GatherNd, [x, column], [out], {})
    blocks = lowering_of(ir.GatherNd)(gather_nd, jnp.asarray(x.array), jnp.asarray(column.array))
    np.testing.assert_array_equal(blocks, nearest)
