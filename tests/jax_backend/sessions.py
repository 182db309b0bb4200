"""A small regression, its gradients by hand, and sessions of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ir.meganeura import Graph, differentiate
from jax_backend.meganeura import Session


def mean_of_product() -> Graph:
    """mean(x w) with x (4, 8), w (8, 4)."""
    g = Graph()
    g.set_outputs([g.mean_all(g.matmul(g.input("x", [4, 8]), g.parameter("w", [8, 4])))])
    return g


def regression() -> Graph:
    """Mean squared error of a network of two layers with 3 inputs, 5 units, 2 outputs, on 7 rows."""
    g = Graph()
    x, target = g.input("x", [7, 3]), g.input("target", [7, 2])
    h = g.tanh(g.bias_add(g.matmul(x, g.parameter("fc1.weight", [3, 5])), g.parameter("fc1.bias", [5])))
    y = g.bias_add(g.matmul(h, g.parameter("fc2.weight", [5, 2])), g.parameter("fc2.bias", [2]))
    g.set_outputs([g.mse_loss(y, target), y])
    return g


SHAPES = {"fc1.weight": (3, 5), "fc1.bias": (5,), "fc2.weight": (5, 2), "fc2.bias": (2,)}


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def trained(gradients: Any = "jax", **options: Any) -> Session:
    """A session of `regression` with its parameters and inputs set."""
    graph = regression()
    session = Session(differentiate(graph) if gradients == "given" else graph, gradients=gradients, **options)
    for n, (name, shape) in enumerate(SHAPES.items()):
        session.set_parameter(name, numbers(n, *shape))
    for name, data in (("x", numbers(10, 7, 3)), ("target", numbers(11, 7, 2))):
        session.set_input(name, np.broadcast_to(data, session.inputs[name]))
    return session


def by_hand(parameters: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of `regression` in float64."""
    p = {name: value.astype(np.float64) for name, value in parameters.items()}
    x, target = numbers(10, 7, 3).astype(np.float64), numbers(11, 7, 2).astype(np.float64)
    h = np.tanh(x @ p["fc1.weight"] + p["fc1.bias"])
    off = h @ p["fc2.weight"] + p["fc2.bias"] - target
    d_y = 2 * off / off.size
    d_h = d_y @ p["fc2.weight"].T * (1 - h * h)
    grads = {"fc1.weight": x.T @ d_h, "fc1.bias": d_h.sum(0), "fc2.weight": h.T @ d_y, "fc2.bias": d_y.sum(0)}
    return float((off * off).mean()), grads


def values(session: Session, names: Sequence[str] = tuple(SHAPES)) -> dict[str, np.ndarray]:
    return {name: session.read_param(name) for name in names}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], rtol: float = 1e-5) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=rtol, atol=1e-6, err_msg=name)
