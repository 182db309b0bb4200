"""What gradients of Meganeura 0.2 come to where they differ from calculus; references in float64 by its formulas."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from ir.meganeura import Graph, NodeId, differentiate
from tests.meganeura_ir.test_gradients import function_of
from tests.reference.meganeura import rope, softmax, waves

ROWS = waves(3, 4).astype(np.float32)
WEIGHTS = waves(3, 4, step=0.9).astype(np.float32)


def grads(x: np.ndarray, build: Callable[[Graph, NodeId], NodeId]) -> tuple[np.ndarray, np.ndarray]:
    """The gradient for x of the loss that `build` makes: as meant, and as 0.2 has it."""
    g = Graph()
    g.set_outputs([build(g, g.parameter("x", x.shape))])
    exact, release = (function_of(differentiate(g, compat=c))[1]([jnp.asarray(x)])[1] for c in (None, "0.2"))
    return np.asarray(exact), np.asarray(release)


def weighed(g: Graph, x: NodeId, weights: np.ndarray = WEIGHTS) -> NodeId:
    """The sum of x times constants."""
    return g.sum_all(g.mul(x, g.constant(weights.reshape(-1).tolist(), weights.shape)))


def test_softmax_sums_over_the_batch() -> None:
    exact, release = grads(ROWS, lambda g, x: weighed(g, g.softmax(x)))
    y, w = softmax(ROWS.astype(np.float64)), WEIGHTS.astype(np.float64)
    np.testing.assert_allclose(exact, y * (w - (w * y).sum(1, keepdims=True)), atol=1e-6)
    np.testing.assert_allclose(release, w * y - y * (w * y).sum(0), atol=1e-6)


def test_log_softmax_lets_nothing_through() -> None:
    exact, release = grads(ROWS, lambda g, x: weighed(g, g.log_softmax(x)))
    w = WEIGHTS.astype(np.float64)
    np.testing.assert_allclose(exact, w - softmax(ROWS.astype(np.float64)) * w.sum(1, keepdims=True), atol=1e-6)
    assert release.tolist() == [0.0]


def test_bce_forgets_what_comes_in_and_the_margin() -> None:
    pred = np.float32([0.25, 0.5, 1.0])

    def loss(g: Graph, x: NodeId) -> NodeId:
        return g.mul(g.bce_loss(x, g.constant([1.0, 0.0, 0.0], [3])), g.scalar(0.5))

    exact, release = grads(pred, loss)
    np.testing.assert_allclose(exact, [-4 / 6, 2 / 6, 0], rtol=1e-5)
    np.testing.assert_allclose(release, [-4 / 3, 2 / 3, np.inf], rtol=1e-5)


def test_max_pool_spreads_over_stride_squared_elements() -> None:
    image = np.arange(16, dtype=np.float32)
    weights = np.float32([1, 2, 3, 4])
    exact, release = grads(image, lambda g, x: weighed(g, g.max_pool_2d(x, 1, 1, 4, 4, 2, 2, 2, 0), weights))
    # The maxima of 0..15 in windows of 2 by 2 are 5, 7, 13 and 15.
    np.testing.assert_array_equal(np.nonzero(exact)[0], [5, 7, 13, 15])
    np.testing.assert_array_equal(exact[[5, 7, 13, 15]], weights)
    np.testing.assert_array_equal(release, np.repeat(weights, 4) / 4)


def test_rope_forgets_a_dynamic_offset() -> None:
    def loss(g: Graph, x: NodeId) -> NodeId:
        return weighed(g, g.rope_dynamic_offset(x, 100.0, g.input_u32("offset", [1]), 4))

    g = Graph()
    g.set_outputs([loss(g, g.parameter("x", [3, 4]))])
    for compat, offset in ((None, 5), ("0.2", 0)):
        _, run = function_of(differentiate(g, compat=compat))
        grad = run([jnp.asarray(ROWS), jnp.array([5], jnp.uint32)])[1]
        np.testing.assert_allclose(grad, rope(WEIGHTS.astype(np.float64), 100.0, offset, 4, sign=-1.0), atol=2e-6)


@pytest.mark.parametrize("name", ["sum_all", "mean_all"])
def test_a_sum_in_the_middle_forgets_what_comes_in(name: str) -> None:
    exact, release = grads(ROWS, lambda g, x: g.tanh(getattr(g, name)(x)))
    share = 1.0 if name == "sum_all" else 1 / ROWS.size
    total = float(ROWS.astype(np.float64).sum()) * share
    np.testing.assert_allclose(exact, np.full((3, 4), share * (1 - np.tanh(total) ** 2)), rtol=1e-5)
    np.testing.assert_allclose(release, np.full((3, 4), share), rtol=1e-6)
