"""Why a program was compiled: one line that names the field that differs from the nearest known program."""

from collections.abc import Iterable, Sequence
from typing import Any

from ir.op import Op, values
from ir.stream import Symbol
from ir.tensor import TensorIr
from jax_backend.executable import Executable


def explain(
    key: tuple[tuple[Symbol, ...], tuple[int, ...]],
    known: Iterable[tuple[tuple[Symbol, ...], tuple[int, ...]]],
    earlier: Sequence[Executable],
    outputs: frozenset[int],
    starts: tuple[int, ...],
) -> str:
    """The reason of a miss, and what to do about it where there is something to do.

    Args:
        key: the key that missed.
        known: keys of the cache.
        earlier: executables that the key has already, for this device.
        outputs: values that must come out.
        starts: slice starts of this execution.
    """
    if earlier:
        if not any(outputs <= e.outputs for e in earlier):
            return "other results are kept than before; a program that returns both serves from now on"
        moved = sum(any(e.starts[n] != s and not e.traced[n] for e in earlier) for n, s in enumerate(starts))
        return f"{moved} slice starts moved; they are arguments from now on"
    symbols, refs = key
    shape = [_kinds(s) for s in symbols]
    for other_symbols, other_refs in known:
        if (other_symbols, other_refs) == key or len(other_symbols) != len(symbols):
            continue
        if [_kinds(s) for s in other_symbols] == shape:
            return _difference(symbols, refs, other_symbols, other_refs)
    return "a sequence of operations not seen before"


def _kinds(symbol: Symbol) -> tuple[str, ...]:
    return tuple(op.kind for op in symbol.ops)


def _difference(
    symbols: Sequence[Symbol], refs: Sequence[int], other_symbols: Sequence[Symbol], other_refs: Sequence[int]
) -> str:
    place = 0
    for symbol, other in zip(symbols, other_symbols, strict=True):
        for op, other_op in zip(symbol.ops, other.ops, strict=True):
            place += 1
            if op != other_op:
                return f"op {place} differs from a known program in {_field(op, other_op)}"
    if list(refs) != list(other_refs):
        return "the same operations on other operands than in a known program"
    return "the same operations with other shapes inside a graph"


def _field(op: Op, other: Op) -> str:
    for (field, value), (_, before) in zip(values(op), values(other), strict=True):
        if value != before:
            hint = "; pad to one shape to share a program" if _shape(value) != _shape(before) else ""
            return f"{op.kind}.{field.path}: {_show(before)} before, {_show(value)} now{hint}"
    return f"{op.kind}: nothing but its operands"


def _shape(value: Any) -> Any:
    return value.shape.dims if isinstance(value, TensorIr) else None


def _show(value: Any) -> str:
    if isinstance(value, TensorIr):
        return f"{value.dtype.short}[{','.join(map(str, value.shape.dims))}]"
    return str(getattr(value, "value", value))
