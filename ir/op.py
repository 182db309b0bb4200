"""The base of every operation and the roles of its fields.

A field is named once, with its role; everything else about it is derived here: which tensors go in and come out, which
values become arguments of the compiled program, what is static and part of its key, the order of a lowering's
arguments, and the code that takes an operation apart while recording.

| role | value | in the program |
|---|---|---|
| `In`, `OptIn`, `InList` | a tensor, none or one, several | traced operands |
| `Out`, `OptOut`, `OutList` | likewise | results |
| `Scalar`, `OptScalar` | `ScalarIr` in the dtype of the operand | traced |
| `Bound` | `ScalarIr` in the widest dtype of its kind | traced |
| `Lifted(lift)` | a value of which a part is traced, as `lift` says | both |
| `Ranges` | slices; plain starts can be traced | both |
| none | anything hashable | static |

Promise: a field is named once; inputs + outputs = every `TensorIr` of the op, in declared order.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Struct
from msgspec.structs import replace

from ir.dtype import I64, U64, DType
from ir.errors import StreamError
from ir.scalar import Number, ScalarIr, convert, widen
from ir.slices import SliceRange, split_ranges
from ir.tensor import NOT_INIT, READ_ONLY, READ_WRITE, TensorIr


class Role(Enum):
    """What a field is to its operation."""

    IN = "tensor in"
    OPT_IN = "tensor in, optional"
    IN_LIST = "tensors in"
    OUT = "tensor out"
    OPT_OUT = "tensor out, optional"
    OUT_LIST = "tensors out"
    SCALAR = "scalar"
    OPT_SCALAR = "scalar, optional"
    RANGES = "ranges"


class ScalarSlot(NamedTuple):
    """One traced scalar of a program: its dtype, and how the host makes a number of that dtype."""

    dtype: DType
    convert: Callable[[Number, DType], Number]


class Lift(Protocol):
    """Splits a value into a static part, which is hashable, and the numbers that are traced."""

    def split(self, value: Any) -> tuple[Any, tuple[ScalarIr, ...]]:
        """Static part and traced numbers of `value`."""
        ...

    def join(self, value: Any, numbers: tuple[ScalarIr, ...]) -> Any:
        """`value` with its traced numbers replaced."""
        ...

    def slots(self, static: Any, dtype: DType) -> tuple[ScalarSlot, ...]:
        """A slot per traced number, for an operation on tensors of `dtype`."""
        ...


class ScalarLift:
    """The lift of a plain scalar: nothing static, one number."""

    def __init__(self, convert: Callable[[Number, DType], Number]) -> None:
        self._convert = convert

    def split(self, value: ScalarIr) -> tuple[None, tuple[ScalarIr, ...]]:
        """Nothing static, the scalar traced."""
        return None, (value,)

    def join(self, value: ScalarIr, numbers: tuple[ScalarIr, ...]) -> ScalarIr:
        """The number itself."""
        return numbers[0]

    def slots(self, static: None, dtype: DType) -> tuple[ScalarSlot, ...]:
        """One slot, in the dtype of the operand; clamp bounds in the widest of its kind."""
        return (ScalarSlot(bound_dtype(dtype) if self._convert is widen else dtype, self._convert),)


class OptScalarLift:
    """The lift of a scalar that may be absent: its presence is static."""

    def split(self, value: ScalarIr | None) -> tuple[bool, tuple[ScalarIr, ...]]:
        """Presence static, the scalar traced."""
        return value is not None, () if value is None else (value,)

    def join(self, value: ScalarIr | None, numbers: tuple[ScalarIr, ...]) -> ScalarIr | None:
        """The number, where there is one."""
        return numbers[0] if numbers else None

    def slots(self, static: bool, dtype: DType) -> tuple[ScalarSlot, ...]:
        """One slot where the scalar is present."""
        return (ScalarSlot(dtype, convert),) if static else ()


def bound_dtype(dtype: DType) -> DType:
    """Dtype of a clamp bound on a tensor of `dtype`: i64, or u64 for U64; floats keep theirs."""
    return dtype if not dtype.is_int or dtype is U64 else I64


In = Annotated[TensorIr, Role.IN]
OptIn = Annotated[TensorIr | None, Role.OPT_IN]
InList = Annotated[tuple[TensorIr, ...], Role.IN_LIST]
Out = Annotated[TensorIr, Role.OUT]
OptOut = Annotated[TensorIr | None, Role.OPT_OUT]
OutList = Annotated[tuple[TensorIr, ...], Role.OUT_LIST]
Scalar = Annotated[ScalarIr, ScalarLift(convert)]
Bound = Annotated[ScalarIr, ScalarLift(widen)]
OptScalar = Annotated[ScalarIr | None, OptScalarLift()]
Ranges = Annotated[tuple[SliceRange, ...], Role.RANGES]

_INPUTS = (Role.IN, Role.OPT_IN, Role.IN_LIST)
_OUTPUTS = (Role.OUT, Role.OPT_OUT, Role.OUT_LIST)
_TENSORS = _INPUTS + _OUTPUTS


class Field(NamedTuple):
    """A field as its operation declares it; `path` goes through nested records (`qparams.scales`)."""

    path: str
    type: Any
    role: "Role | Lift | None"

    @property
    def is_input(self) -> bool:
        """A tensor, or several, that go in."""
        return self.role in _INPUTS

    @property
    def is_output(self) -> bool:
        """A tensor, or several, that come out."""
        return self.role in _OUTPUTS

    @property
    def is_lifted(self) -> bool:
        """A value that is traced, wholly or in part."""
        return self.role is not None and not isinstance(self.role, Role)


class Parts(NamedTuple):
    """An operation taken apart.

    `signature` is hashable and holds all that decides the compiled code (ids, statuses and traced values left out);
    `ids` are the operands, inputs then outputs; `freed` the inputs used for the last time.
    """

    signature: tuple[Any, ...]
    ids: tuple[int, ...]
    freed: tuple[int, ...]
    scalars: tuple[ScalarIr, ...]
    starts: tuple[int, ...]


class Op(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """An operation: a record whose fields carry roles.

    A class without a `families` entry in the registry is a record shape, not a kind.
    """

    uses_random: ClassVar[bool] = False
    """The lowering takes a random key before its operands."""

    @property
    def kind(self) -> str:
        """Burn's or Meganeura's name of the operation."""
        return type(self).__name__

    @property
    def inputs(self) -> tuple[TensorIr, ...]:
        """Tensors that go in, in declared order; absent optional ones are left out."""
        return tuple(t for field, value in values(self) if field.is_input for t in _listed(value))

    @property
    def outputs(self) -> tuple[TensorIr, ...]:
        """Tensors that come out, in declared order."""
        return tuple(t for field, value in values(self) if field.is_output for t in _listed(value))

    @property
    def traced_scalars(self) -> tuple[ScalarIr, ...]:
        """The scalars that become arguments of the program, in declared order."""
        numbers: list[ScalarIr] = []
        for field, value in values(self):
            if field.is_lifted:
                lift: Any = field.role
                numbers += lift.split(value)[1]
        return tuple(numbers)

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{f.path}={show_value(value)}' for f, value in values(self))})"


def show_value(value: Any) -> str:
    """The value of a field, for people."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(show_value, cast('tuple[Any, ...]', value)))}]"
    if isinstance(value, ScalarIr):
        return repr(value.value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return value.value if isinstance(value, Enum) else str(value)


OpT = TypeVar("OpT", bound=Op)
RecordT = TypeVar("RecordT", bound=Struct)


@cache
def fields(record: type[Struct]) -> tuple[Field, ...]:
    """The fields of a record in declared order; nested records that hold roles are flattened."""
    hints = get_type_hints(record, include_extras=True)
    found: list[Field] = []
    for name, nested in layout(record):
        if nested:
            found += [Field(f"{name}.{f.path}", f.type, f.role) for f in fields(nested)]
        else:
            marks: tuple[Any, ...] = getattr(hints[name], "__metadata__", ())
            role = next((m for m in marks if isinstance(m, Role) or hasattr(m, "split")), None)
            found.append(Field(name, hints[name], role))
    return tuple(found)


@cache
def layout(record: type[Struct]) -> tuple[tuple[str, type[Struct] | None], ...]:
    """The fields of a record by name, each with the class of the nested record flattened in its place, if any."""
    hints = get_type_hints(record, include_extras=True)
    nested = {name: _record_in(hints[name]) for name in record.__struct_fields__}
    return tuple((name, n if n and any(f.role for f in fields(n)) else None) for name, n in nested.items())


def _record_in(hint: Any) -> type[Struct] | None:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return bare if isinstance(bare, type) and issubclass(bare, Struct) and bare.__struct_config__.array_like else None


def values(op: Op) -> Iterator[tuple[Field, Any]]:
    """Each field of `op` with its value."""
    for field in fields(type(op)):
        value: Any = op
        for name in field.path.split("."):
            value = getattr(value, name)
        yield field, value


def _listed(value: TensorIr | tuple[TensorIr, ...] | None) -> tuple[TensorIr, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _rebuild(record: RecordT, change: Callable[[Field, Any], Any], flat: Iterator[Field]) -> RecordT:
    """`record` with every flattened field passed through `change`."""
    changed: list[Any] = []
    for name, nested in layout(type(record)):
        value = getattr(record, name)
        changed.append(_rebuild(value, change, flat) if nested else change(next(flat), value))
    return type(record)(*changed)


def map_operands(op: OpT, function: Callable[[Field, TensorIr], TensorIr]) -> OpT:
    """`op` with `function` applied to each tensor and the field that holds it, in declared order of the fields."""

    def change(field: Field, value: Any) -> Any:
        if field.role not in _TENSORS or value is None:
            return value
        if isinstance(value, tuple):
            return tuple([function(field, t) for t in cast("tuple[TensorIr, ...]", value)])
        return function(field, value)

    return _rebuild(op, change, iter(fields(type(op))))


def map_tensors(op: OpT, function: Callable[[TensorIr], TensorIr]) -> OpT:
    """`op` with `function` applied to each tensor, inputs and outputs, in declared order of the fields."""
    return map_operands(op, lambda _, tensor: function(tensor))


def map_scalars(op: OpT, function: Callable[[ScalarIr], ScalarIr]) -> OpT:
    """`op` with `function` applied to each traced scalar, in declared order."""

    def change(field: Field, value: Any) -> Any:
        if not field.is_lifted:
            return value
        lift: Any = field.role
        return lift.join(value, tuple(map(function, lift.split(value)[1])))

    return _rebuild(op, change, iter(fields(type(op))))


def map_ranges(op: OpT, function: Callable[[SliceRange], SliceRange]) -> OpT:
    """`op` with `function` applied to each slice."""

    def change(field: Field, value: Any) -> Any:
        return tuple([function(r) for r in value]) if field.role is Role.RANGES else value

    return _rebuild(op, change, iter(fields(type(op))))


def operand_dtype(op: Op) -> DType:
    """Dtype that the scalars of `op` take: that of its first input, or of its output where it has no input."""
    return (*op.inputs, *op.outputs)[0].dtype


def scalar_slots(op: Op) -> tuple[ScalarSlot, ...]:
    """A slot per traced scalar of `op`, in declared order."""
    dtype = operand_dtype(op) if op.inputs or op.outputs else None
    slots: list[ScalarSlot] = []
    for field, value in values(op):
        if field.is_lifted and dtype is not None:
            lift: Any = field.role
            slots += lift.slots(lift.split(value)[0], dtype)
    return tuple(slots)


def mark_read_only(op: OpT) -> OpT:
    """`op` with every input `ReadOnly` and every output `NotInit`: the form that enters a relative graph."""
    return map_operands(op, lambda f, t: replace(t, status=NOT_INIT if f.is_output else READ_ONLY))


def consumed(kind: str, inputs: Sequence[TensorIr]) -> tuple[int, ...]:
    """Ids of the inputs that are used for the last time.

    Raises:
        StreamError: an input is `NotInit`.
    """
    ended: list[int] = []
    for tensor in inputs:
        if tensor.status is READ_WRITE:
            ended.append(tensor.id.value)
        elif tensor.status is NOT_INIT:
            raise StreamError(f"{kind}: input {tensor} has the status NotInit; expected ReadOnly or ReadWrite")
    return tuple(ended)


class Splitter(NamedTuple):
    """The generated code of a kind.

    `split(op)` takes an operation apart into `Parts`. `bind(op, find, make)` does so for one whose signature is known,
    without the tuple in between: `make(find(signature), ids, freed, scalars, starts)`, or None where `find` gives None.
    """

    split: Callable[[Any], Parts]
    bind: Callable[[Any, Callable[[Any], Any], Callable[..., Any]], Any]


class Splitters(dict[type[Op], Splitter]):
    """The splitter of each kind, made at its first use."""

    def __missing__(self, kind: type[Op]) -> Splitter:
        made = self[kind] = make_splitter(kind)
        return made


SPLITTERS: Final = Splitters()


def make_splitter(kind: type[Op]) -> Splitter:
    """The code that takes an operation of `kind` apart.

    It is generated, as dataclasses generate theirs: reading the fields through `values` costs 6 us per operation,
    the generated code 0.4 us, and recording has 2 us in all.
    """
    body: list[str] = []
    signature, ids = ["kind"], {True: list[str](), False: list[str]()}
    used: dict[str, str] = {}
    scalars, starts = list[str](), list[str]()
    scope: dict[str, Any] = {"kind": kind, "consumed": consumed, "RO": READ_ONLY, "split_ranges": split_ranges}
    for n, field in enumerate(fields(kind)):
        v = f"v{n}"
        body.append(f"{v} = op.{field.path}")
        if field.role in (Role.IN, Role.OUT):
            signature.append(f"{v}.shape, {v}.dtype")
            ids[field.is_input].append(f"{v}.id.value")
        elif field.role in (Role.OPT_IN, Role.OPT_OUT):
            signature.append(f"None if {v} is None else ({v}.shape, {v}.dtype)")
            ids[field.is_input].append(f"*(() if {v} is None else ({v}.id.value,))")
        elif field.role in (Role.IN_LIST, Role.OUT_LIST):
            signature.append(f"tuple([(t.shape, t.dtype) for t in {v}])")
            ids[field.is_input].append(f"*[t.id.value for t in {v}]")
        elif field.role is Role.RANGES:
            body.append(f"{v}, s{n} = split_ranges({v}, op.tensor.shape.dims)")
            signature.append(v)
            starts.append(f"*s{n}")
        elif isinstance(field.role, ScalarLift):
            scalars.append(v)
        elif field.is_lifted:
            scope[f"l{n}"] = field.role
            body.append(f"{v}, s{n} = l{n}.split({v})")
            signature.append(v)
            scalars.append(f"*s{n}")
        else:
            signature.append(v)
        if field.is_input:
            used[v] = {Role.IN: v, Role.OPT_IN: f"*(() if {v} is None else ({v},))", Role.IN_LIST: f"*{v}"}[field.role]  # type: ignore[index]
    plain = [v for v, form in used.items() if form == v]
    if len(plain) == len(used):
        kept = " and ".join(f"{v}.status is RO" for v in plain) or "True"
    else:
        kept = f"all([t.status is RO for t in ({', '.join(used.values())},)])"
    body.append(f"freed = () if {kept} else consumed(kind.__name__, ({''.join(f'{f}, ' for f in used.values())}))")
    key, operands, numbers, moving = (_tuple(p) for p in (signature, ids[True] + ids[False], scalars, starts))
    lines = "".join(f"    {line}\n" for line in body)
    source = (
        f"def split(op):\n{lines}    return {key}, {operands}, freed, {numbers}, {moving}\n"
        f"def bind(op, find, make):\n{lines}    symbol = find({key})\n"
        f"    return None if symbol is None else make(symbol, {operands}, freed, {numbers}, {moving})\n"
    )
    exec(source, scope)  # the source is made of field names of our own classes alone
    return Splitter(scope["split"], scope["bind"])


def _tuple(items: Sequence[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"
