"""Checks of one operation and of a stream, without running anything.

| level | what is checked |
|---|---|
| `off` | nothing |
| `cheap` | statuses; the inputs fit the kind; the declared outputs are what the shape rule says |
| `full` | the same; ids are defined before use, not used after their last use, and keep shape and dtype |

What the inputs do not decide is taken from the declaration: any store of a bool output, any int dtype of an index
output (Burn's clients do not agree there), the dtype of a cast, the shape of a reshape. The dtype that an outer variant
carries beside its operation is a hint and not looked at.
"""

import os
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Final, cast

from msgspec.structs import replace

from ir.dtype import StrEnum
from ir.errors import DTypeError, ShapeError, StreamError
from ir.op import SPLITTERS, Op, Role, fields, values
from ir.ops.control import Drop, Init
from ir.shapes import Outputs, TensorType, declared, infer, show, type_of
from ir.stream import Entry
from ir.tensor import NOT_INIT, READ_WRITE, TensorId, TensorIr

ENVIRONMENT: Final = "BURN_XLA_VERIFY"
"""Environment variable that names the level where nobody says."""

REMEMBERED: Final = 20_000
"""Ended ids, and signatures found right, that a verifier keeps at most: an endless stream has no end of either."""


class Level(StrEnum):
    """How much is checked."""

    off = "off"
    cheap = "cheap"
    full = "full"


def level_from_environment(default: Level = Level.cheap) -> Level:
    """The level that the environment names.

    Raises:
        ValueError: it names none.
    """
    name = os.environ.get(ENVIRONMENT, default.value)
    try:
        return Level(name)
    except ValueError:
        raise ValueError(f"{ENVIRONMENT}: expected off, cheap or full, got {name!r}") from None


def verify_op(op: Op) -> None:
    """Check one operation by itself.

    Raises:
        StreamError: an input is `NotInit`, or an output is not.
        ShapeError, DTypeError: the inputs do not fit, or an output is declared in another shape or dtype than it has.
    """
    SPLITTERS[type(op)].split(op)
    _check_statuses(op, op.outputs)
    _check_declared(op, infer(op, declared(op)))


@cache
def _outputs_of(kind: type[Op]) -> Callable[[Op], Iterable[TensorIr]]:
    """The outputs of an operation of `kind`; a look-up where all are plain fields, as nearly always."""
    outputs = [field for field in fields(kind) if field.is_output]
    if all(field.role is Role.OUT and "." not in field.path for field in outputs):
        names = [field.path for field in outputs]
        return lambda op: [getattr(op, name) for name in names]
    return lambda op: op.outputs


def _check_statuses(op: Op, outputs: Iterable[TensorIr]) -> None:
    """Every output is new. A splitter refuses the inputs that are."""
    for tensor in outputs:
        if tensor.status is not NOT_INIT and not isinstance(op, Init):
            raise StreamError(f"{op.kind}: output {tensor} has the status {tensor.status.value}; expected NotInit")


def _check_declared(op: Op, made: Outputs) -> None:
    """Compare the outputs of `op`, field by field, with what the shape rule says."""
    named: list[tuple[str, TensorIr | None]] = []
    for field, value in values(op):
        if field.is_output:
            if isinstance(value, tuple):
                listed = cast("tuple[TensorIr, ...]", value)
                named += [(f"{field.path}.{n}", tensor) for n, tensor in enumerate(listed)]
            else:
                named.append((field.path, value))
    if len(named) != len(made):
        raise ShapeError(f"{op.kind}: expected {len(made)} outputs, got {len(named)}")
    for (name, tensor), type in zip(named, made, strict=True):
        _check_output(f"{op.kind}.{name}", tensor, type)


def _check_output(where: str, tensor: TensorIr | None, type: TensorType | None) -> None:
    if type is None or tensor is None:
        if (type is None) != (tensor is None):
            expected, got = ("none", "one") if type is None else ("a tensor", "none")
            raise ShapeError(f"{where}: expected {expected}, got {got}")
        return
    if tensor.shape.dims != type.dims:
        raise ShapeError(f"{where}: expected shape {show(type.dims)}, got {show(tensor.shape.dims)}")
    if tensor.dtype != type.dtype:
        raise DTypeError(f"{where}: expected dtype {type.dtype.short}, got {tensor.dtype.short}")


class StreamVerifier:
    """Checks the operations of a stream, one after the other.

    Args:
        level: how much is checked.
        closed: every id that is used has been made by an operation, announced by `Init`, or named to `define`. Without
            it an id at its first sight is taken as one that comes from outside.
    """

    def __init__(self, level: Level = Level.full, *, closed: bool = False) -> None:
        self.level: Final = level
        self._closed = closed
        self._live: dict[int, TensorType] = {}
        self._ended: dict[int, str] = {}
        self._right: set[Hashable] = set()
        self._position = 0

    def define(self, id: int, type: TensorType | None = None) -> None:
        """An id that comes from outside, such as uploaded data or an alias.

        Without a type its first use says it, which a closed stream does not allow.
        """
        if self.level is not Level.full:
            return
        if type is not None:
            self._begin(id, type)
        else:
            self._live.pop(id, None)
            self._ended.pop(id, None)

    def drop(self, id: int) -> None:
        """An id that is forgotten; one that is unknown or gone is no error."""
        if self._live.pop(id, None) is not None:
            self._end(id, "a Drop")

    def check(self, op: Op) -> None:
        """Check the next operation of the stream. A wrong one makes nothing and ends nothing.

        Raises:
            StreamError: a status or an id is used as a stream does not allow.
            ShapeError, DTypeError: shapes or dtypes do not fit.
        """
        if self.level is Level.off:
            return
        self._check_alone(op)
        if self.level is Level.full:
            self._check_ids(op)
        self._position += 1

    def check_entry(self, entry: Entry) -> None:
        """Check the next element of the stream where it is an execution of a registered graph.

        Raises:
            StreamError, ShapeError, DTypeError: as `check`; the operation is one of the graph.
        """
        if self.level is Level.off:
            return
        symbol = entry.symbol
        if symbol not in self._right:
            for op in symbol.ops:
                self._check_alone(op)
            self._right.add(symbol)
        if self.level is Level.full:
            self._check_entry_ids(entry)
        self._position += 1

    def _check_entry_ids(self, entry: Entry) -> None:
        described = {t.id.value: t for op in entry.symbol.ops for t in (*op.inputs, *op.outputs)}
        for number, id in enumerate(entry.inputs):
            if number in described:
                self._check_use("ExecuteGraph", replace(described[number], id=TensorId(id)))
        for id in entry.freed:
            if self._live.pop(id, None) is not None:
                self._end(id, f"op {self._position + 1} (ExecuteGraph)")
        for number, id in enumerate(entry.outputs, entry.symbol.num_inputs):
            self._begin(id, type_of(described[number]))

    def _check_alone(self, op: Op) -> None:
        """`verify_op`, once per signature: beside the statuses nothing else decides."""
        signature, *_ = SPLITTERS[type(op)].split(op)
        _check_statuses(op, _outputs_of(type(op))(op))
        if signature not in self._right:
            _check_declared(op, infer(op, declared(op)))
            if len(self._right) >= REMEMBERED:
                self._right.clear()
            self._right.add(signature)

    def _check_ids(self, op: Op) -> None:
        if isinstance(op, Drop):
            self.drop(op.tensor.id.value)
            return
        for tensor in op.inputs:
            self._check_use(op.kind, tensor)
        if isinstance(op, Init) and (known := self._live.get(op.out.id.value)):
            self._check_same(op.kind, op.out, known)
        for tensor in op.inputs:
            if tensor.status is READ_WRITE and self._live.pop(tensor.id.value, None) is not None:
                self._end(tensor.id.value, f"op {self._position + 1} ({op.kind})")
        for tensor in op.outputs:
            self._begin(tensor.id.value, type_of(tensor))

    def _check_use(self, kind: str, tensor: TensorIr) -> None:
        id = tensor.id.value
        known = self._live.get(id)
        if known is not None:
            self._check_same(kind, tensor, known)
        elif id in self._ended:
            raise StreamError(f"{kind}: input {tensor} is used after its last use, {self._ended[id]}")
        elif self._closed:
            raise StreamError(f"{kind}: input {tensor} is used before anything makes it")
        else:
            self._begin(id, type_of(tensor))

    def _check_same(self, kind: str, tensor: TensorIr, known: TensorType) -> None:
        if (got := type_of(tensor)) != known:
            error = ShapeError if got.dims != known.dims else DTypeError
            raise error(f"{kind}: expected t{tensor.id.value} as it was made, {known}, got {got}")

    def _begin(self, id: int, type: TensorType) -> None:
        self._ended.pop(id, None)
        self._live[id] = type

    def _end(self, id: int, where: str) -> None:
        self._ended[id] = where
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]


def verify_stream(ops: Iterable[Op], level: Level = Level.full, *, closed: bool = False) -> None:
    """Check a whole stream; see `StreamVerifier`.

    Raises:
        StreamError, ShapeError, DTypeError: the message says which operation, counted from 1.
    """
    verifier = StreamVerifier(level, closed=closed)
    for position, op in enumerate(ops, 1):
        try:
            verifier.check(op)
        except (StreamError, ShapeError, DTypeError) as error:
            raise type(error)(f"op {position}: {error}") from None
