"""From a graph to pure operations, which the interpreter, the caches and the stores of Burn's programs run as well.

Meganeura runs every node in id order on buffers, and `CacheWrite` changes the buffer of its cache in place. Here only
what the outputs and the cache writes need is kept, and each write makes a new value: whoever reads the cache, an alias
of it (`Identity`) or the node of the write afterwards reads that value instead. What a cache that is a leaf holds in
the end is a result of the program, for the next run to start from.

Promise: no operation of a program has an effect, and every result is made by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ir.errors import IrError, StreamError
from ir.meganeura.buffers import owners
from ir.meganeura.core import GraphCore
from ir.meganeura.node import out_tensor, reading
from ir.meganeura.ops.attention import CausalAttention, CausalAttentionRoPE
from ir.meganeura.ops.indexing import CacheWrite
from ir.meganeura.ops.leaf import Identity, Input, Nop, Parameter
from ir.meganeura.ops.reduce import LogSoftmax, Softmax
from ir.meganeura.rules import verify_node
from ir.meganeura.types import Compat, NodeId, TensorType
from ir.op import Op, map_operands, map_tensors
from ir.stream import RelativeGraph
from ir.tensor import TensorId, TensorIr

Leaf: TypeAlias = Parameter | Input


class GraphProgram(Struct, frozen=True):
    """A graph as pure operations; tensor ids are node ids, and larger ones for what was put in."""

    ops: tuple[Op, ...]
    """In an order in which every operand is made before it is read; no leaves, no deleted nodes."""
    leaves: tuple[Leaf, ...]
    """The leaves that `ops` read, in id order."""
    outputs: tuple[int, ...]
    """Ids of the graph's results, in its order."""
    states: tuple[tuple[NodeId, int], ...]
    """Each leaf that `CacheWrite` changes, with the id of its new value."""

    def relative(self) -> RelativeGraph:
        """The same with values numbered from 0: inputs are `leaves`, outputs are `outputs`, then the new values."""
        made = [t.id.value for op in (*self.leaves, *self.ops) for t in op.outputs]
        number = {id: n for n, id in enumerate(made)}
        return RelativeGraph(
            ops=tuple(map_tensors(op, lambda t: replace(t, id=TensorId(number[t.id.value]))) for op in self.ops),
            inputs=tuple(range(len(self.leaves))),
            outputs=tuple(number[id] for id in (*self.outputs, *(new for _, new in self.states))),
            num_values=len(made),
            scalars=(),
            starts=(),
            num_random=0,
        )


def program(graph: GraphCore, compat: Compat = None) -> GraphProgram:
    """The live part of a graph, checked, as pure operations.

    `compat="0.2"` leaves out the logarithm of `LogSoftmax` and the rotation of `CausalAttentionRoPE`, as 0.2 does.

    Raises:
        StreamError: the graph has no outputs and no cache writes, a live node reads a deleted one, or nodes read each
            other in a circle.
        ShapeError, DTypeError: a live node is wrong; the message says which.
    """
    ops = graph.ops()
    wanted = [*graph.outputs(), *(n for n, op in enumerate(ops) if isinstance(op, CacheWrite))]
    if not wanted:
        raise StreamError("the graph has no outputs; say which nodes are results with `set_outputs`")
    builder = _Builder(len(ops), owners(ops))
    for id in in_order(ops, sorted(set(wanted))):
        op = ops[id]
        try:
            verify_node(op)
        except IrError as error:
            raise type(error)(f"node %{id}: {error}") from None
        builder.add(_as_run(op) if compat else op)
    return builder.finish([graph.tensor(id) for id in graph.outputs()])


def in_order(ops: Sequence[Op], wanted: Sequence[NodeId]) -> Iterator[NodeId]:
    """The ids that `wanted` need, ascending where inputs allow it, each after its inputs."""
    live = _live(ops, wanted)
    done: set[NodeId] = set()
    open_: set[NodeId] = set()
    for start in sorted(live):
        stack = [start]
        while stack:
            id = stack[-1]
            missing = [t.id.value for t in ops[id].inputs if t.id.value not in done]
            if id in done or not missing:
                stack.pop()
                open_.discard(id)
                if id not in done:
                    done.add(id)
                    yield id
                continue
            if id in open_:
                raise StreamError(f"node %{id} ({ops[id].kind}) reads itself, by way of node %{missing[0]}")
            open_.add(id)
            stack += reversed(missing)


def _live(ops: Sequence[Op], wanted: Sequence[NodeId]) -> set[NodeId]:
    live: set[NodeId] = set()
    stack = list(wanted)
    while stack:
        id = stack.pop()
        if isinstance(ops[id], Nop):
            raise StreamError(f"node %{id} is deleted (Nop), and an output or a live node reads it")
        if id not in live:
            live.add(id)
            stack += [t.id.value for t in ops[id].inputs]
    return live


def _as_run(op: Op) -> Op:
    """The operation that Meganeura 0.2 runs for `op`."""
    if isinstance(op, LogSoftmax):
        return Softmax(op.x, op.out)
    if isinstance(op, CausalAttentionRoPE):
        return CausalAttention(op.q, op.k, op.v, op.out, op.num_heads, op.num_kv_heads, op.head_dim)
    return op


class _Builder:
    """Takes nodes in order and follows what their buffers hold."""

    def __init__(self, fresh: int, owner: Mapping[NodeId, NodeId]) -> None:
        self._ops: list[Op] = []
        self._leaves: list[Leaf] = []
        self._fresh = fresh
        self._owner = owner
        self._written: dict[NodeId, TensorIr] = {}
        """What each buffer that was written to holds now."""

    def add(self, op: Op) -> None:
        """The next node."""
        if isinstance(op, Leaf):
            self._leaves.append(op)
            return
        now = map_operands(op, lambda field, tensor: tensor if field.is_output else self._now(tensor))
        if isinstance(op, CacheWrite):
            self._written[self._owner[op.out.id.value]] = reading(op.out)
        self._ops.append(now)

    def finish(self, outputs: Sequence[TensorIr]) -> GraphProgram:
        """The program with these results."""
        made = {op.outputs[0].id.value for op in self._ops}
        results: list[int] = []
        for tensor in map(self._now, outputs):
            copied = tensor if tensor.id.value in made else self._reshaped(tensor, tensor)
            results.append(copied.id.value)
        leaves = sorted(self._leaves, key=lambda leaf: leaf.out.id.value)
        changed = [leaf.out for leaf in leaves if leaf.out.id.value in self._written]
        states = tuple((out.id.value, self._now(out).id.value) for out in changed)
        return GraphProgram(tuple(self._ops), tuple(leaves), tuple(results), states)

    def _now(self, tensor: TensorIr) -> TensorIr:
        """What a read of `tensor` gives at this point."""
        held = self._written.get(self._owner.get(tensor.id.value, tensor.id.value))
        if held is None or held.id == tensor.id:
            return tensor
        return held if held.shape == tensor.shape else self._reshaped(held, tensor)

    def _reshaped(self, tensor: TensorIr, like: TensorIr) -> TensorIr:
        out = out_tensor(self._fresh, TensorType.of(like))
        self._ops.append(Identity(reading(tensor), out))
        self._fresh += 1
        return reading(out)
