"""From a stream of operations to programs: symbols, relative graphs, bindings.

A *symbol* is what one element of a stream looks like without ids, statuses and traced values. Equal elements have the
same symbol object, so that keys, cuts and look-ups compare pointers. A segment of the stream is its symbols and its
*refs*: the operand ids renumbered in first-use order. Together they are the key of a program; the ids themselves,
the scalars and the slice starts are the bindings of one execution.

Promise: equal keys <=> same program up to ids and traced values; no traced scalar, id or device object in a key.
"""

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ir.op import (
    SPLITTERS,
    Op,
    ScalarSlot,
    map_operands,
    map_ranges,
    map_scalars,
    map_tensors,
    mark_read_only,
    scalar_slots,
)
from ir.ops.control import AllReduce, Drop, Init
from ir.scalar import ScalarIr
from ir.slices import SliceRange, window
from ir.tensor import READ_WRITE, TensorId, TensorIr

SYMBOL_LIMIT: Final = 200_000
"""Symbols kept at most; beyond it those of no cached program are dropped (a client that never repeats itself)."""


class StartSlot(Struct, frozen=True, gc=False):
    """A slice start that may be traced: axis of `size` elements, of which `count` are taken."""

    size: int
    count: int


class Symbol:
    """The content of a stream element: one operation, or a registered graph.

    Operands are numbered 0.. : the `num_inputs` that come in, then those that come out, then what stays inside.
    Compared by identity; `SymbolTable` keeps one object per content.
    """

    __slots__ = (
        "digest",
        "has_collective",
        "num_inputs",
        "num_operands",
        "num_random",
        "ops",
        "scalars",
        "starts",
        "weight",
    )

    def __init__(self, ops: tuple[Op, ...], num_inputs: int, num_operands: int) -> None:
        self.ops: Final = ops
        self.num_inputs: Final = num_inputs
        self.num_operands: Final = num_operands
        self.scalars: Final = tuple(chain.from_iterable(map(scalar_slots, ops)))
        self.starts: Final = tuple(chain.from_iterable(map(start_slots, ops)))
        self.num_random: Final = sum(op.uses_random for op in ops)
        self.weight: Final = len(ops)
        self.has_collective: Final = any(isinstance(op, AllReduce) for op in ops)
        content = msgspec.msgpack.encode([(op.kind, op) for op in ops])
        self.digest: Final = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")

    def __repr__(self) -> str:
        return f"<{self.ops[0].kind}>" if self.weight == 1 else f"<graph of {self.weight}>"


class Entry(Struct, frozen=True, gc=False):
    """One element of a stream: its symbol and what one execution binds to it.

    `ids` are concrete tensor ids, one per operand; `freed` those used for the last time.
    """

    symbol: Symbol
    ids: tuple[int, ...]
    freed: tuple[int, ...]
    scalars: tuple[ScalarIr, ...]
    starts: tuple[int, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Ids that come in."""
        return self.ids[: self.symbol.num_inputs]

    @property
    def outputs(self) -> tuple[int, ...]:
        """Ids that come out."""
        return self.ids[self.symbol.num_inputs :]


class SymbolTable:
    """One `Symbol` per content. Shared by all recorders that share a program cache."""

    def __init__(self) -> None:
        self._symbols: dict[Hashable, Symbol] = {}
        self.generation = 0
        """Counts how often symbols were forgotten: whoever holds some is to let go of them then."""

    def __len__(self) -> int:
        return len(self._symbols)

    def entry(self, op: Op) -> Entry:
        """`op` taken apart; `Init` and `Drop` are not part of a program and not allowed here.

        Raises:
            StreamError: an input is `NotInit`.
            ShapeError: a slice has step 0.
        """
        return SPLITTERS[type(op)].bind(op, self._symbols.get, Entry) or self._first_entry(op)

    def _first_entry(self, op: Op) -> Entry:
        signature, ids, freed, scalars, starts = SPLITTERS[type(op)].split(op)
        symbol = self.intern(signature, op_symbol(op, len(op.inputs), len(ids)))
        return Entry(symbol, ids, freed, scalars, starts)

    def find(self, content: Hashable) -> Symbol | None:
        """The symbol of `content`, if it is known."""
        return self._symbols.get(content)

    def intern(self, content: Hashable, symbol: Symbol) -> Symbol:
        """Keep `symbol` as the one of `content`, unless another came first."""
        return self._symbols.setdefault(content, symbol)

    def keep_only(self, used: set[Symbol]) -> None:
        """Forget every symbol that is not in `used`."""
        self._symbols = {content: symbol for content, symbol in self._symbols.items() if symbol in used}
        self.generation += 1


def op_symbol(op: Op, num_inputs: int, num_operands: int) -> Symbol:
    """The symbol of one operation, its operands numbered in order; one that occurs twice has two numbers.

    The refs of a segment join them again, so that `x * x` and `x * y` share a symbol.
    """
    numbers = {False: iter(range(num_inputs)), True: iter(range(num_inputs, num_operands))}
    relative = map_operands(op, lambda f, t: _renumbered(t, next(numbers[f.is_output])))
    return Symbol((canonical(relative),), num_inputs, num_operands)


def graph_symbol(ops: Sequence[Op], operands: Sequence[int], num_inputs: int) -> Symbol:
    """The symbol of several operations; `operands` are the ids that come in and out, each once."""
    known = {concrete: n for n, concrete in enumerate(operands)}
    relative = [map_tensors(op, lambda t: _renumbered(t, known.setdefault(t.id.value, len(known)))) for op in ops]
    return Symbol(tuple(map(canonical, relative)), num_inputs, len(operands))


def canonical(op: Op) -> Op:
    """`op` without what varies between executions: statuses, traced scalars, slice starts."""
    op = map_scalars(mark_read_only(op), lambda _: ScalarIr(UInt=0))
    dims = iter(op.inputs[0].shape.dims if start_slots(op) or hasattr(op, "ranges") else ())
    return map_ranges(op, lambda item: _canonical_range(item, next(dims)))


def _canonical_range(item: SliceRange, size: int) -> SliceRange:
    laid = window(item, size)
    if laid.step == 1 and not laid.reverse:
        return SliceRange(0, laid.count, 1)
    return SliceRange(
        laid.start, laid.start + (laid.count - 1) * laid.step + 1 if laid.count else laid.start, item.step
    )


def _renumbered(tensor: TensorIr, number: int) -> TensorIr:
    return replace(tensor, id=TensorId(number))


def start_slots(op: Op) -> tuple[StartSlot, ...]:
    """The slice starts of `op` that may be traced, in order."""
    ranges: tuple[SliceRange, ...] = getattr(op, "ranges", ())
    if not ranges:
        return ()
    laid = [(window(item, size), size) for item, size in zip(ranges, op.inputs[0].shape.dims, strict=False)]
    return tuple(StartSlot(size, w.count) for w, size in laid if w.step == 1 and not w.reverse)


class RelativeGraph(Struct, frozen=True):
    """A program without its bindings: `ops` on values numbered in first-use order, which come in, which survive.

    Traced scalars of the ops are placeholders; `scalars` says their dtypes, in order. `starts` are the slice starts.
    """

    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    num_values: int
    scalars: tuple[ScalarSlot, ...]
    starts: tuple[StartSlot, ...]
    num_random: int

    def tensors(self) -> dict[int, TensorIr]:
        """A description of each value, by number."""
        return {t.id.value: t for op in self.ops for t in (*op.inputs, *op.outputs)}


class Bindings(Struct):
    """What one execution of a program binds: concrete id of each numbered value, scalars, slice starts."""

    ids: list[int]
    scalars: list[ScalarIr]
    starts: tuple[int, ...]


class Segment(Struct):
    """A stretch of a stream with its key.

    `symbols` and `refs` are the key; `numbers` maps ids to values, `produced` each id that comes out to the element
    that made it last, `consumed` each id to the element that used it for the last time.
    """

    symbols: tuple[Symbol, ...]
    refs: tuple[int, ...]
    bindings: Bindings
    numbers: dict[int, int]
    produced: dict[int, int]
    consumed: dict[int, int]

    @property
    def key(self) -> tuple[tuple[Symbol, ...], tuple[int, ...]]:
        """Key of the program, ids and traced values left out."""
        return self.symbols, self.refs


def segment(entries: Sequence[Entry]) -> Segment:
    """Renumber the ids of `entries` in first-use order. Linear in the number of operands."""
    flat = list(chain.from_iterable([e.ids for e in entries]))
    order = list(dict.fromkeys(flat))
    numbers = dict(zip(order, range(len(order)), strict=True))
    produced: dict[int, int] = {}
    consumed: dict[int, int] = {}
    for place, entry in enumerate(entries):
        for freed in entry.freed:
            consumed[freed] = place
        for out in entry.ids[entry.symbol.num_inputs :]:
            produced[out] = place
    bindings = Bindings(
        order,
        [s for e in entries for s in e.scalars],
        tuple([s for e in entries for s in e.starts]),
    )
    symbols = tuple([e.symbol for e in entries])
    return Segment(symbols, tuple(map(numbers.__getitem__, flat)), bindings, numbers, produced, consumed)


def survivors(part: Segment, dropped: dict[int, int] | None = None) -> list[int]:
    """Ids that `part` produces and does not consume; `dropped` maps ids to the number of elements before their `Drop`.

    A Drop before the last element decides survival; a later one only frees the handle.
    """
    alive = [i for i, made in part.produced.items() if part.consumed.get(i, -1) <= made]
    if not dropped:
        return alive
    last = len(part.symbols)
    return [i for i in alive if not part.produced[i] < dropped.get(i, -1) < last]


def build_graph(symbols: Sequence[Symbol], refs: Sequence[int], outputs: Sequence[int]) -> RelativeGraph:
    """The program of a key, with the values `outputs` as results."""
    given = iter(refs)
    fresh = max(refs, default=-1) + 1
    ops: list[Op] = []
    inputs: dict[int, None] = {}
    made: set[int] = set()
    for symbol in symbols:
        names = [next(given) for _ in range(symbol.num_operands)]
        inputs.update(dict.fromkeys(n for n in names[: symbol.num_inputs] if n not in made))
        made.update(names[symbol.num_inputs :])
        inner: dict[int, int] = dict(enumerate(names))
        for op in symbol.ops:
            for t in op.outputs:
                if t.id.value not in inner:
                    inner[t.id.value] = fresh
                    fresh += 1
            ops.append(map_tensors(op, lambda t, inner=inner: _renumbered(t, inner[t.id.value])))
    return RelativeGraph(
        ops=tuple(ops),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        num_values=fresh,
        scalars=tuple(chain.from_iterable(s.scalars for s in symbols)),
        starts=tuple(chain.from_iterable(s.starts for s in symbols)),
        num_random=sum(s.num_random for s in symbols),
    )


def split_drops(ops: Sequence[Op]) -> tuple[list[Op], dict[int, int]]:
    """`ops` without `Init` and `Drop`, and the ids dropped, each with the number of operations before its Drop."""
    kept: list[Op] = []
    dropped: dict[int, int] = {}
    for op in ops:
        if isinstance(op, Drop):
            dropped[op.tensor.id.value] = len(kept)
        elif not isinstance(op, Init):
            kept.append(op)
    return kept, dropped


def relativise(ops: Sequence[Op], table: SymbolTable | None = None) -> tuple[RelativeGraph, Bindings]:
    """The program of `ops` and the bindings of this execution.

    >>> from ir import F32, Add, tensor
    >>> a, b, c = (tensor(i, (2,), F32) for i in (7, 9, 4))
    >>> graph, bindings = relativise([Add(a, b, c), Add(c, c, tensor(5, (2,), F32))])
    >>> graph.inputs, graph.outputs, bindings.ids
    ((0, 1), (2, 3), [7, 9, 4, 5])
    """
    kept, dropped = split_drops(ops)
    table = table or SymbolTable()
    part = segment([table.entry(op) for op in kept])
    return build_graph(*part.key, [part.numbers[i] for i in survivors(part, dropped)]), part.bindings


def bound_ops(graph: RelativeGraph, bindings: Bindings) -> tuple[Op, ...]:
    """The operations of `graph` with the ids, scalars and slice starts of one execution put back.

    A value that stays inside and has no id of its own gets one above all others.

    >>> from ir import F32, AddScalar, scalar, tensor
    >>> graph, bindings = relativise([AddScalar(tensor(7, (2,), F32), scalar(1.5), tensor(8, (2,), F32))])
    >>> print(*bound_ops(graph, bindings))
    AddScalar(lhs=t7 f32[2], rhs=1.5, out=t8 f32[2])
    """
    above = max(bindings.ids, default=-1) + 1
    names = [*bindings.ids, *range(above, above + graph.num_values - len(bindings.ids))]
    scalars, starts = iter(bindings.scalars), iter(bindings.starts)
    bound: list[Op] = []
    for op in graph.ops:
        named = map_scalars(map_tensors(op, lambda t: _renumbered(t, names[t.id.value])), lambda _: next(scalars))
        bound.append(map_ranges(named, lambda r: _restarted(r, next(starts)) if r.step == 1 else r))
    return tuple(bound)


def concrete_ops(entry: Entry, fresh: Iterator[int]) -> list[Op]:
    """The operations of `entry` with ids, scalars and starts put back; what stays inside gets ids of `fresh`.

    An input is ReadWrite at its last use where `entry` frees it.
    """
    names = dict(enumerate(entry.ids))
    scalars, starts = iter(entry.scalars), iter(entry.starts)
    ops: list[Op] = []
    for op in entry.symbol.ops:
        for t in op.outputs:
            names.setdefault(t.id.value, next(fresh))
        bound = map_tensors(op, lambda t: _renumbered(t, names[t.id.value]))
        bound = map_scalars(bound, lambda _: next(scalars))
        ops.append(map_ranges(bound, lambda r: _restarted(r, next(starts)) if r.step == 1 else r))
    return _mark_last_uses(ops, set(entry.freed))


def _restarted(item: SliceRange, start: int) -> SliceRange:
    assert item.end is not None
    return SliceRange(start, start + item.end, 1)


def _mark_last_uses(ops: list[Op], freed: set[int]) -> list[Op]:
    marked: list[Op] = []
    for op in reversed(ops):
        last = {t.id.value: id(t) for t in op.inputs if t.id.value in freed}
        freed -= last.keys()
        ends = set(last.values())
        marked.append(map_tensors(op, lambda t, ends=ends: replace(t, status=READ_WRITE) if id(t) in ends else t))
    return marked[::-1]
