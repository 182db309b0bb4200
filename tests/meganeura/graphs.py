"""Values for the leaves of the crate's own graphs, and what the crate joins in them."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ir.meganeura import Graph
from ir.meganeura.ops import Input, Parameter
from tests.meganeura.referee import Referee, Values

Array: TypeAlias = np.ndarray
Joined: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
"""Parameters that are others side by side: their names and columns."""


def leaves(graph: Graph, *, seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Parameters, but for caches and joined ones, and inputs.

    Weights keep activations near 1, labels sum to 1.
    """
    filled = {"kv_cache", *(param.name for param in graph.derived_params)}
    rng = np.random.default_rng(seed)
    parameters: dict[str, Array] = {}
    inputs: dict[str, Array] = {}
    for op in graph.ops():
        shape = op.outputs[0].shape.dims
        if isinstance(op, Parameter) and not any(op.name.startswith(name) for name in filled):
            if "norm" in op.name and "bias" not in op.name:
                parameters[op.name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
            else:
                parameters[op.name] = rng.standard_normal(shape, np.float32) * np.float32(0.1)
        elif isinstance(op, Input):
            inputs[op.name] = _input(rng, op, shape)
    return parameters, inputs


def _input(rng: np.random.Generator, op: Input, shape: Sequence[int]) -> Array:
    if op.out.dtype.short == "u32":
        return rng.integers(0, 90, shape, np.uint32)
    made = rng.standard_normal(shape, np.float32)
    if op.name != "labels":
        return made
    powers = np.exp(made)
    return powers / powers.sum(-1, keepdims=True)


def joined_parameters(referee: Referee, graph: Graph) -> Joined:
    """What the crate's optimizer joins in a forward graph."""
    optimized = Graph.from_msgpack(referee.passes(graph.to_msgpack(), ["Optimize"]))
    return {param.name: param.sources for param in optimized.derived_params}


def join(values: Values, joined: Joined) -> dict[str, Array]:
    """Values by name, with the joined ones in place of their parts."""
    made = {
        name: np.concatenate([values[source].reshape(-1, columns) for source, columns in sources], axis=1).ravel()
        for name, sources in joined.items()
    }
    parts = {source for sources in joined.values() for source, _ in sources}
    return {name: value for name, value in values.items() if name not in parts} | made
