"""A Meganeura graph as a pure function of its parameters, inputs and caches, and what each of them may hold.

Promise: pure; a cache that the graph writes comes in as a state and goes out as a new one.
"""

from collections.abc import Iterable
from math import prod
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from ir.errors import DTypeError, IrError, ShapeError, StreamError
from ir.meganeura import Compat, Graph, program
from ir.meganeura.ops import CacheWrite, Embedding, Identity, Input, Parameter
from ir.op import Op
from ir.stream import RelativeGraph
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.dtypes import jax_dtype
from jax_backend.interpreter import run_graph
from jax_backend.types import Array


class UnknownName(IrError):
    """A graph has no parameter, input or output of this name or number."""


def listed(names: Iterable[str]) -> str:
    """Names for a message, ten at most."""
    there = sorted(names)
    more = f" and {len(there) - 10} more" if len(there) > 10 else ""
    return (", ".join(there[:10]) or "none") + more


class Limit(NamedTuple):
    """What indices have to stay below, and whose rows these are."""

    rows: int
    reason: str


class Leaf(NamedTuple):
    """A parameter or input: how it is called, its shape, its dtype (f32 or u32), and what bounds its values."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    limit: Limit | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.dtype.name}{list(self.shape)}"

    def zeros(self) -> np.ndarray:
        """What it holds before it is set."""
        return np.zeros(self.shape, self.dtype)

    def batched(self, size: int) -> "Leaf":
        """The same for each of `size` sets, along a new first axis."""
        return self._replace(shape=(size, *self.shape))

    def conformed(self, data: Any) -> "np.ndarray | Array":
        """`data` as an array of this shape and dtype; a jax array stays one, any other is copied.

        It is flat or in shape; the last axis may be several, since the IR has images as one axis.

        Raises:
            ShapeError: it has another number of elements, another shape, or an index beyond its limit.
            DTypeError: floats where indices are expected, or negative ones.
        """
        if isinstance(data, jax.Array) and data.shape == self.shape and data.dtype == self.dtype:
            return data
        array = data if isinstance(data, jax.Array) else np.array(data)
        outer = self.shape[:-1]
        if array.size != prod(self.shape) or (array.ndim > 1 and array.shape[: len(outer)] != outer):
            raise ShapeError(
                f"{self.name}: expected {prod(self.shape)} elements, flat or in shape {list(self.shape)}, "
                f"got shape {list(array.shape)}"
            )
        if self.dtype == np.uint32 and array.size and not isinstance(array, jax.Array):
            self._check_indices(array)
        return array.reshape(self.shape).astype(self.dtype)

    def _check_indices(self, array: np.ndarray) -> None:
        if not np.issubdtype(array.dtype, np.integer):
            raise DTypeError(f"{self.name}: expected whole numbers (u32), got {array.dtype.name}")
        low, high = int(array.min()), int(array.max())
        if low < 0:
            raise DTypeError(f"{self.name}: expected u32, got {low}")
        if self.limit and high >= self.limit.rows:
            raise ShapeError(f"{self.name}: expected values below {self.limit.rows}, {self.limit.reason}, got {high}")


class GraphFunction:
    """What a graph computes: `(parameters, inputs, states) -> (outputs, new states)`, each a list of arrays.

    `parameters`, `inputs` and `states` describe the leaves that it reads, in node order; a state is a leaf that a
    `CacheWrite` changes. `unused` are the parameters and inputs of the graph that nothing reads.

    Args:
        graph: the graph.
        compat: which meaning its operations have.

    Raises:
        StreamError: two parameters, or two inputs, have one name.
    """

    def __init__(self, graph: Graph, compat: Compat = None) -> None:
        made = program(graph, compat)
        self.relative: Final[RelativeGraph] = made.relative()
        self.num_outputs: Final = len(made.outputs)
        leaves = _leaves(graph)
        read = [_id(op) for op in made.leaves]
        changed = [leaf for leaf, _ in made.states]
        fixed = [op for op in made.leaves if _id(op) not in changed]
        groups = (
            [_id(op) for op in fixed if isinstance(op, Parameter)],
            [_id(op) for op in fixed if isinstance(op, Input)],
            changed,
        )
        self.parameters, self.inputs, self.states = (tuple(leaves[id] for id in group) for group in groups)
        self.unused: Final = tuple(leaf for id, leaf in leaves.items() if id not in read)
        order = {id: place for place, id in enumerate(id for group in groups for id in group)}
        self._order = [order[id] for id in read]

    def __call__(
        self, parameters: list[Array], inputs: list[Array], states: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        """Trace the graph on arrays of the described shapes and dtypes."""
        given = [*parameters, *inputs, *states]
        results = list(run_graph(self.relative, [given[n] for n in self._order], (), (), None, CustomOpRegistry()))
        return results[: self.num_outputs], results[self.num_outputs :]


def _id(op: Op) -> int:
    return op.outputs[0].id.value


def _leaves(graph: Graph) -> dict[int, Leaf]:
    """The parameters and inputs by node."""
    limits = _limits(graph)
    found: dict[int, Leaf] = {}
    names: dict[tuple[type[Op], str], int] = {}
    for op in graph.ops():
        if isinstance(op, Parameter | Input):
            first = names.setdefault((type(op), op.name), _id(op))
            if first != _id(op):
                raise StreamError(
                    f"{op.kind} {op.name!r}: expected one node of this name, got %{first} and %{_id(op)}; "
                    "a session finds its buffers by name"
                )
            out = op.out
            found[first] = Leaf(op.name, out.shape.dims, np.dtype(jax_dtype(out.dtype)), limits.get(first))
    return found


def _limits(graph: Graph) -> dict[int, Limit]:
    """What the values of index inputs have to stay below, by node; the least where several operations read one."""
    found: dict[int, Limit] = {}
    for op in graph.ops():
        if isinstance(op, Embedding):
            indices, table, reason = op.indices, op.table, "the rows of the table"
        elif isinstance(op, CacheWrite):
            indices, table, reason = op.kv_pos, op.cache, "the rows of the cache"
        else:
            continue
        source = graph.op(indices.id.value)
        while isinstance(source, Identity):
            source = graph.op(source.x.id.value)
        limit = Limit(table.shape.dims[0], f"{reason} of {op.kind} %{_id(op)}")
        found[_id(source)] = min(limit, found.get(_id(source), limit))
    return found
