"""The custom operations that every session knows, and the registry itself."""

from typing import Any

import jax
import numpy as np
import pytest

import ir
from ir.errors import UnsupportedOp
from jax_backend.custom_ops import CustomOpRegistry, default_custom_ops


def svd(shape: tuple[int, ...], swap: bool, dtype: ir.DType = ir.F32) -> ir.Custom:
    """A decomposition of x (.., m, n) as Burn declares it."""
    *batch, m, n = shape
    rows, columns = (n, m) if swap else (m, n)
    outs = [(*batch, rows, n), (*batch, n), (*batch, n, columns)]
    outputs = tuple(ir.tensor(1 + k, dims, dtype, ir.NOT_INIT) for k, dims in enumerate(outs))
    scalars = (ir.ScalarIr(UInt=15), ir.ScalarIr(Bool=swap))
    return ir.Custom("linalg::svd", (ir.tensor(0, shape, dtype),), outputs, scalars)


def matrix(*shape: int) -> np.ndarray:
    return np.sin(np.arange(int(np.prod(shape)), dtype=np.float64) ** 2).reshape(shape).astype(np.float32)


def run(op: ir.Custom, *inputs: Any) -> list[np.ndarray]:
    """The handler of `op`, compiled."""
    handler = default_custom_ops().handler(op)
    return [np.asarray(x) for x in jax.jit(lambda *given: handler(op, given))(*inputs)]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 4), (3, 1)])
def test_svd_factors_give_the_users_matrix_back(shape: tuple[int, ...], swap: bool) -> None:
    x = matrix(*shape)
    op = svd(shape, swap)
    u, s, vt = run(op, x)
    assert [f.shape for f in (u, s, vt)] == [t.shape.dims for t in op.outputs]
    users = np.swapaxes(x, -1, -2) if swap else x
    np.testing.assert_allclose((u * s[..., None, :]) @ vt, users, atol=5e-6)
    identity = np.broadcast_to(np.eye(shape[-1], dtype=np.float32), (*shape[:-2], shape[-1], shape[-1]))
    np.testing.assert_allclose(np.swapaxes(u, -1, -2) @ u, identity, atol=5e-6)
    np.testing.assert_allclose(vt @ np.swapaxes(vt, -1, -2), identity, atol=5e-6)
    assert (np.diff(s) <= 0).all()
    assert (s >= 0).all()


def test_svd_of_a_half_keeps_its_dtype() -> None:
    x = np.diag([3.0, 2.0]).astype(np.float16)
    u, s, vt = run(svd((2, 2), False, ir.F16), x)
    assert {f.dtype for f in (u, s, vt)} == {np.dtype(np.float16)}
    np.testing.assert_array_equal(s, np.array([3, 2], np.float16))


def test_default_registry_knows_what_burn_sends() -> None:
    assert sorted(default_custom_ops()) == ["linalg::svd", "signal::irfft", "signal::rfft"]


def test_registries_are_separate() -> None:
    default_custom_ops().register("mine", lambda op, inputs: inputs)
    assert "mine" not in list(default_custom_ops())


def test_id_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'linalg::svd' has a handler already"):
        default_custom_ops().register("linalg::svd", lambda op, inputs: inputs)


def test_unknown_id_names_the_known_ones() -> None:
    op = ir.Custom("nobody::knows", (), (), ())
    with pytest.raises(UnsupportedOp, match=r"nobody::knows.*known ids: linalg::svd, signal::irfft, signal::rfft"):
        default_custom_ops().handler(op)
    with pytest.raises(UnsupportedOp, match="known ids: none"):
        CustomOpRegistry().handler(op)
