"""Graphs with the values of their leaves, drawn from a seed."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ir.meganeura import Graph
from ir.meganeura.types import NodeId, TensorType
from ir.op import Op

T = TypeVar("T")
Array: TypeAlias = np.ndarray
Content: TypeAlias = Callable[[np.random.Generator, Sequence[int]], Array]

SIZES = (1, 2, 3, 5, 7, 11, 33, 66)
"""Below, at and above the 32 and 64 that Meganeura's kernels tile by."""


def normal(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Around 0, of variance 1."""
    return rng.standard_normal(shape, np.float32)


def positive(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """From 0.1 to 0.9: what a logarithm, a reciprocal or a probability takes."""
    return rng.uniform(0.1, 0.9, shape).astype(np.float32)


def distribution(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Rows that sum to 1."""
    made = rng.uniform(0, 1, shape)
    return (made / made.sum(-1, keepdims=True)).astype(np.float32)


class Maker:
    """A graph under construction.

    Args:
        seed: decides all that is drawn.
        middle: put every tensor through a product with an input first, so that what reads it is no neighbour of a leaf.
    """

    def __init__(self, seed: Sequence[int], *, middle: bool = False) -> None:
        self.graph = Graph()
        self.parameters: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}
        self._rng = np.random.default_rng(seed)
        self._middle = middle

    def number(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return int(self._rng.integers(low, high + 1))

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return options[self.number(0, len(options) - 1)]

    def size(self) -> int:
        """The length of an axis."""
        return self.pick(SIZES)

    def sizes(self, count: int) -> tuple[int, ...]:
        """The lengths of some axes."""
        return tuple(self.size() for _ in range(count))

    def shape(self) -> tuple[int, ...]:
        """One or two axes."""
        return self.sizes(self.number(1, 2))

    def tensor(self, *shape: int, content: Content = normal) -> NodeId:
        """A parameter."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = content(self._rng, shape)
        made = self.graph.parameter(name, shape)
        return self.graph.mul(made, self.input(*shape, content=positive)) if self._middle else made

    def input(self, *shape: int, content: Content = normal) -> NodeId:
        """An input."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = content(self._rng, shape)
        return self.graph.input(name, shape)

    def constant(self, *shape: int) -> NodeId:
        """A constant, of one number in half of all cases."""
        data = np.full(shape, self._rng.standard_normal()) if self.pick((True, False)) else normal(self._rng, shape)
        return self.graph.constant(data.ravel().tolist(), shape)

    def indices(self, count: int, below: int) -> NodeId:
        """An input of `count` indices in [0, below)."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self._rng.integers(0, below, count, np.uint32)
        return self.graph.input_u32(name, (count,))

    def raw(self, kind: type[Op], inputs: Sequence[NodeId], shape: Sequence[int], **attributes: Any) -> NodeId:
        """A node that no builder method makes."""
        return self.graph.add_raw_node(kind, inputs, TensorType.f32(shape), **attributes)

    def dims(self, node: NodeId) -> tuple[int, ...]:
        """The shape of a node."""
        return self.graph.ty(node).shape

    def weighted_mean(self, node: NodeId) -> NodeId:
        """A loss of which every element of `node` has another share: the mean of its product with a parameter."""
        return self.graph.mean_all(self.graph.mul(node, self.tensor(*self.dims(node))))
