"""Finds the first operation that goes wrong: where two sides differ, or where a NaN or an infinity appears.

`faults` wraps these as searches that also make a recording small.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import jax.numpy as jnp
import numpy as np

from ir.errors import StreamError
from ir.op import Op
from ir.stream import SymbolTable
from ir.tensor import TensorIr
from jax_backend import host
from jax_backend.check import TOLERANCES, Comparison, Tolerance, compared
from jax_backend.recording import Recording
from jax_backend.shrinking import cut
from jax_backend.sides import Recorded, Side, Values

EXACT: Final = Tolerance(0.0, 0.0)


@dataclass(frozen=True)
class Operand:
    """An input of the operation at fault, as each side has it."""

    tensor: TensorIr
    left: np.ndarray
    right: np.ndarray | None

    @property
    def is_same(self) -> bool:
        """Both sides have the same bits, NaN for NaN."""
        if self.right is None or self.left.dtype != self.right.dtype:
            return self.right is None
        return self.left.tobytes() == self.right.tobytes()


@dataclass(frozen=True)
class Fault:
    """The first operation that goes wrong: where it is, which output, and what went in and came out on each side.

    `comparison` and `right` are None where a NaN or an infinity was looked for; `left` too where the operation failed,
    as `error` says. `by_itself` compares the left's output with what the right side makes of the left's inputs: if that
    agrees, the difference came in with the inputs. None where the inputs are the same, or it could not be asked.
    """

    place: int
    total: int
    op: Op
    tensor: TensorIr
    left: np.ndarray | None
    right: np.ndarray | None
    comparison: Comparison | None
    inputs: tuple[Operand, ...]
    error: str = ""
    by_itself: Comparison | None = None


Tick = Callable[[int], None]
"""Told after each operation how many are done."""


class _Run:
    """One side under way; a value is kept until its last use."""

    def __init__(self, side: Side, recording: Recording, given: Values) -> None:
        self._recording = recording
        self._steps: Iterator[Values] = side.run(recording, given)
        self._values: Values = {}

    def step(self, place: int) -> Values:
        """The outputs of the next operation, which is at `place`."""
        for id in self._recording.last_used_at(place - 1):
            self._values.pop(id, None)
        made = next(self._steps)
        self._values.update(made)
        return made

    def value(self, id: int) -> np.ndarray | None:
        """What the side has for a tensor, if it has it."""
        if id in self._recording.data:
            return host.to_numpy(self._recording.data[id])
        return self._values.get(id)


def first_difference(
    left: tuple[Recording, Side],
    right: tuple[Recording, Side],
    tolerance: Tolerance | None = None,
    tick: Tick | None = None,
    *,
    only_by_itself: bool = False,
) -> Fault | None:
    """The first operation of which an output differs between two runs of the same operations.

    Each side computes on with its own values. Random numbers are those of the left side.

    Args:
        left: what runs on the left, and how.
        right: likewise; the same recording, or another one of the same operations.
        tolerance: for every float; by default by dtype, see `check`. Everything else is compared exactly.
        tick: progress.
        only_by_itself: pass over operations that agree on the inputs of the left side.

    Raises:
        StreamError: the recordings hold other operations; the message names the first.
        OperationFailed: an operation failed on one side.
    """
    (mine, my_side), (theirs, their_side) = left, right
    if theirs is not mine:
        check_same_operations(mine, theirs)
    drawn: Values = {}
    runs = _Run(my_side, mine, {}), _Run(their_side, theirs, drawn)
    for place, (op, other) in enumerate(zip(mine.ops, theirs.ops, strict=True)):
        made = runs[0].step(place)
        if op.uses_random:
            drawn.update((b.id.value, made[a.id.value]) for a, b in zip(op.outputs, other.outputs, strict=True))
        wanted = runs[1].step(place)
        for tensor, pair in zip(op.outputs, other.outputs, strict=True):
            if tensor.id.value in made and pair.id.value in wanted:
                got, want = made[tensor.id.value], wanted[pair.id.value]
                comparison = compared(got, want, tolerance_of(tensor, tolerance))
                if not comparison.agrees:
                    inputs = _operands(op, other, *runs)
                    fault = Fault(place, len(mine.ops), op, tensor, got, want, comparison, inputs)
                    fault = replace(fault, by_itself=_by_itself(mine, their_side, fault, tolerance))
                    if not (only_by_itself and fault.by_itself and fault.by_itself.agrees):
                        return fault
        if tick:
            tick(place + 1)
    return None


def _by_itself(recording: Recording, right: Side, fault: Fault, tolerance: Tolerance | None) -> Comparison | None:
    """See `Fault.by_itself`."""
    known = {operand.tensor.id for operand in fault.inputs}
    is_known = all(tensor.id in known for tensor in fault.op.inputs)
    if isinstance(right, Recorded) or fault.op.uses_random or not is_known or fault.left is None:
        return None
    if all(operand.is_same for operand in fault.inputs):
        return None
    (made,) = right.run(operation_alone(recording, fault), {})
    return compared(fault.left, made[fault.tensor.id.value], tolerance_of(fault.tensor, tolerance))


def operation_alone(recording: Recording, fault: Fault) -> Recording:
    """The operation at fault by itself, on its inputs of the left side, with its output read."""
    values = {operand.tensor.id.value: operand.left for operand in fault.inputs}
    return cut(recording, [fault.place], fault.tensor.id.value, values)


def tolerance_of(tensor: TensorIr, override: Tolerance | None) -> Tolerance:
    """How far apart two values of `tensor` may be."""
    if not tensor.dtype.is_float or tensor.dtype.is_quantized:
        return EXACT
    return override or TOLERANCES[tensor.dtype]


def first_nonfinite(
    recording: Recording, side: Side, *, infinities: bool = True, tick: Tick | None = None
) -> Fault | None:
    """The first operation that makes a NaN, or an infinity, of inputs that have none.

    Args:
        recording: what runs.
        side: how.
        infinities: whether an infinity counts; a mask of -inf is no fault.
        tick: progress.

    Raises:
        OperationFailed: an operation failed.
    """

    def is_bad(array: np.ndarray) -> bool:
        if not jnp.issubdtype(array.dtype, jnp.floating):
            return False
        wide = array.astype(np.float64)
        return bool((~np.isfinite(wide) if infinities else np.isnan(wide)).any())

    run = _Run(side, recording, {})
    for place, op in enumerate(recording.ops):
        made = run.step(place)
        bad = [t for t in op.outputs if t.id.value in made and is_bad(made[t.id.value])]
        inputs = _operands(op, op, run, None) if bad else ()
        if bad and not any(is_bad(operand.left) for operand in inputs):
            return Fault(place, len(recording.ops), op, bad[0], made[bad[0].id.value], None, None, inputs)
        if tick:
            tick(place + 1)
    return None


def check_same_operations(left: Recording, right: Recording) -> None:
    """Compare two recordings without their ids, scalars and data.

    Raises:
        StreamError: they differ; the message names the first operation that does.
    """
    table = SymbolTable()
    for place, (mine, theirs) in enumerate(zip(left.ops, right.ops, strict=False)):
        if table.entry(mine).symbol is not table.entry(theirs).symbol:
            raise StreamError(f"op {place}: the sessions part: {mine} here, {theirs} there")
    if len(left.ops) != len(right.ops):
        raise StreamError(f"the sessions part: {len(left.ops)} operations here, {len(right.ops)} there")


def _operands(op: Op, other: Op, left: _Run, right: _Run | None) -> tuple[Operand, ...]:
    """The inputs that have a value on the left, each once."""
    pairs = {a.id.value: (a, b) for a, b in zip(op.inputs, other.inputs, strict=True)}
    found: list[Operand] = []
    for mine, theirs in pairs.values():
        value = left.value(mine.id.value)
        if value is not None:
            found.append(Operand(mine, value, right.value(theirs.id.value) if right else None))
    return tuple(found)
