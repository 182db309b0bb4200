"""Graphs that fusion clients register once and execute by id with new bindings.

An execution is one symbol of the stream: its key is the graph's content with the sizes, slice lengths and static
scalars bound, never its id. Everything that a known graph needs is looked up, so that a call costs the same whatever
the graph's length.

Source: burn-ir `graph.rs`, burn-remote; placeholders: `bind_op`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ir.errors import StreamError
from ir.op import Op, map_ranges, map_scalars, map_tensors, values
from ir.operation import GraphBindings
from ir.ops.control import Custom, Drop, Init
from ir.scalar import ScalarIr
from ir.slices import SliceRange, split_ranges
from ir.stream import Entry, Symbol, SymbolTable, graph_symbol
from ir.tensor import READ_WRITE, Shape, TensorIr


class RangeUse(NamedTuple):
    """A slice of the graph and the size it is laid on, each a placeholder or itself."""

    item: SliceRange
    size: int


class _Call(NamedTuple):
    """What all executions with the same sizes share; `operands` and `freed` are places in the bindings' tensors."""

    symbol: Symbol
    operands: tuple[int, ...]
    freed: tuple[int, ...]


class RegisteredGraph:
    """The operations of a relative graph, and where its placeholders stand.

    Args:
        ops: the operations as registered; their ids, sizes, scalars and slices are placeholders.
    """

    __slots__ = ("_calls", "_range_uses", "_scalar_uses", "_static_uses", "ops")

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = tuple(op for op in ops if not isinstance(op, Init))
        running = [op for op in self.ops if not isinstance(op, Drop)]
        self._scalar_uses = [s for op in running for s in op.traced_scalars]
        self._static_uses = [s for op in running for s in static_scalars(op)]
        self._range_uses = [
            RangeUse(item, size)
            for op in running
            for item, size in zip(getattr(op, "ranges", ()), op.inputs[0].shape.dims if op.inputs else (), strict=False)
        ]
        self._calls: dict[Any, _Call] = {}

    def entry(self, bindings: GraphBindings, table: SymbolTable) -> Entry:
        """One execution, as an element of the stream.

        Raises:
            StreamError: a placeholder or a tensor is not bound.
        """
        names = tuple([pair[0].value for pair in bindings.tensors])
        ids = tuple([pair[1].value for pair in bindings.tensors])
        fixed = tuple([_bound_scalar(s, bindings) for s in self._static_uses])
        laid: tuple[Any, ...] = ()
        starts: tuple[int, ...] = ()
        if self._range_uses:
            slices = tuple([_bound_range(use.item, bindings) for use in self._range_uses])
            sizes = tuple([_bound_size(use.size, bindings.shapes) for use in self._range_uses])
            laid, starts = split_ranges(slices, sizes)
        content = (names, bindings.shapes, fixed, laid)
        call = self._calls.get(content)
        if call is None:
            call = self._calls[content] = self._call(names, content, bindings, table)
        scalars = tuple([_bound_scalar(s, bindings) for s in self._scalar_uses])
        return Entry(
            call.symbol, tuple([ids[n] for n in call.operands]), tuple([ids[n] for n in call.freed]), scalars, starts
        )

    def _call(self, names: tuple[int, ...], content: Any, bindings: GraphBindings, table: SymbolTable) -> _Call:
        bound = [bind_op(op, bindings) for op in self.ops]
        running = [op for op in bound if not isinstance(op, Drop)]
        made = {t.id.value for op in running for t in op.outputs}
        check_inputs(running, names, made)
        ended = {t.id.value for op in bound for t in op.inputs if t.status is READ_WRITE or isinstance(op, Drop)}
        freed = tuple(n for n, name in enumerate(names) if name in ended and name not in made)
        used = {t.id.value for op in running for t in (*op.inputs, *op.outputs)}
        operands = tuple(n for n, name in enumerate(names) if name in used)  # some inputs are dropped and no more
        key = ("graph", self.ops, content)
        symbol = table.find(key)
        if symbol is None:
            num_inputs = sum(names[n] not in made for n in operands)
            symbol = table.intern(key, graph_symbol(running, [names[n] for n in operands], num_inputs))
        return _Call(symbol, operands, freed)


def check_inputs(ops: Sequence[Op], names: Sequence[int], made: set[int]) -> None:
    """Check that each input is bound or made before, and that the bindings name what comes in before what comes out.

    Raises:
        StreamError: it is not so.
    """
    inputs = [name for name in names if name not in made]
    if list(names[: len(inputs)]) != inputs:
        raise StreamError("ExecuteGraph.bindings.tensors: expected the inputs before the outputs")
    known = set(inputs)
    for place, op in enumerate(ops, 1):
        for t in op.inputs:
            if t.id.value not in known:
                raise StreamError(
                    f"ExecuteGraph: op {place} ({op.kind}) reads {t}, which is neither bound nor made before"
                )
        known.update(t.id.value for t in op.outputs)


def static_scalars(op: Op) -> tuple[ScalarIr, ...]:
    """The scalars of `op` that are part of the key: exponents, and those of a custom operation."""
    if isinstance(op, Custom):
        return op.scalars
    return tuple(value for field, value in values(op) if field.role is None and isinstance(value, ScalarIr))


def bind_op(op: Op, bindings: GraphBindings) -> Op:
    """`op` with its placeholders for sizes, scalars and slices replaced; tensor ids stay relative.

    A size `d` stands for `shapes[d]`, a scalar `UInt(p)` for `scalars[p]`, a slice that starts at `p` for `ranges[p]`;
    whatever lies beyond its table stands for itself.
    """

    def sized(t: TensorIr) -> TensorIr:
        return replace(t, shape=Shape(tuple([_bound_size(d, bindings.shapes) for d in t.shape.dims])))

    bound = map_scalars(map_tensors(op, sized), lambda s: _bound_scalar(s, bindings))
    bound = map_ranges(bound, lambda r: _bound_range(r, bindings))
    if isinstance(bound, Custom):
        return replace(bound, scalars=tuple([_bound_scalar(s, bindings) for s in bound.scalars]))
    fixed = {
        field.path: _bound_scalar(value, bindings)
        for field, value in values(bound)
        if field.role is None and isinstance(value, ScalarIr)
    }
    return replace(bound, **fixed) if fixed else bound


def _bound_size(size: int, shapes: Sequence[int]) -> int:
    return shapes[size] if size < len(shapes) else size


def _bound_scalar(value: ScalarIr, bindings: GraphBindings) -> ScalarIr:
    place = value.UInt
    return bindings.scalars[place] if isinstance(place, int) and place < len(bindings.scalars) else value


def _bound_range(item: SliceRange, bindings: GraphBindings) -> SliceRange:
    return bindings.ranges[item.start] if 0 <= item.start < len(bindings.ranges) else item
