"""Builds operations from tensors and plain Python values: the one way in for recorders, tests and people.

Tensors go by declared order; every other field by name, those of a nested record by their own names too. Scalars may be
Python numbers, enums their names, tuples lists; a number stands for a tuple of itself (`stride=2`), and an axis may be
counted from the end. The outputs come from the shape rules, or are given.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ir.op import Op, Role, _record_in, fields
from ir.records import Record
from ir.scalar import ScalarIr, scalar
from ir.shapes import NOTHING, Given, infer
from ir.tensor import NOT_INIT, Shape, TensorId, TensorIr

Operand: TypeAlias = "TensorIr | Sequence[TensorIr] | None"
OpT = TypeVar("OpT", bound=Op)

_REQUIRED: Final = object()
_DEFAULTS: Final[dict[str, object]] = {
    "accumulator_len": 1,
    "ceil_mode": False,
    "count_include_pad": True,
    "descending": False,
    "dilation": 1,
    "groups": 1,
    "is_causal": False,
    "offset_groups": 1,
    "padding_out": 0,
    "scalars": (),
    "weight_groups": 1,
}
"""What a field is where nobody says: Burn's own defaults. Optional fields are None."""
_OPTION_DEFAULTS: Final[dict[str, object]] = {"stride": 1, "padding": 0}
"""The same for the options of a convolution; a pool has to say."""
_AXES: Final = frozenset({"axis", "axes", "dim", "dim1", "dim2"})
_AXIS_NAMES: Final = {"axis": "dim", "dim": "axis"}
"""Burn's records say `axis` or `dim` for the same thing; either name serves for both."""


class _Slot(NamedTuple):
    """A field as `build` fills it; `record` is the record that a static field holds, if any."""

    path: str
    name: str
    role: object
    type: Any
    is_scalar: bool
    record: "type[Struct] | None"


@cache
def _hints(record: type[Struct]) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


def _bare(hint: Any) -> Any:
    return _bare(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _is_scalar(hint: Any) -> bool:
    bare = _bare(hint)
    return bare is ScalarIr or set(get_args(bare)) == {ScalarIr, NoneType}


@cache
def _slots(kind: type[Op]) -> tuple[_Slot, ...]:
    found: list[_Slot] = []
    for f in fields(kind):
        role = f.role if isinstance(f.role, Role) and f.role is not Role.RANGES else None
        inner = _record_in(f.type) if role is None else None
        record = inner if inner is not None and issubclass(inner, Record) else None
        name = f.path.rpartition(".")[2]
        found.append(_Slot(f.path, name, role, f.type, _is_scalar(f.type), record))
    return tuple(found)


def parameters(kind: type[Op]) -> tuple[str, ...]:
    """Names of what `kind` is built from, in declared order: tensors, then as `static` takes them.

    >>> from ir import Gather, Conv2d
    >>> parameters(Gather), parameters(Conv2d)
    (('tensor', 'dim', 'indices'), ('x', 'weight', 'bias', 'stride', 'padding', 'dilation', 'groups'))
    """
    names: list[str] = []
    for slot in _slots(kind):
        if slot.role not in (Role.OUT, Role.OPT_OUT, Role.OUT_LIST):
            names += slot.record.__struct_fields__ if slot.record else (slot.name,)
    return tuple(names)


def input_names(kind: type[Op]) -> tuple[str, ...]:
    """Names of the tensors that `kind` takes, in declared order; they are among its `parameters`."""
    return tuple(slot.name for slot in _slots(kind) if slot.role in (Role.IN, Role.OPT_IN, Role.IN_LIST))


def build(
    kind: type[OpT],
    inputs: Sequence[Operand],
    new_id: Callable[[], int],
    static: Mapping[str, object],
    given: Given = NOTHING,
) -> OpT:
    """The operation of `kind` on `inputs`, with outputs as the shape rule says, under ids of `new_id`.

    >>> from ir import F32, Conv2d, tensor
    >>> x, w = tensor(0, (2, 3, 9, 9), F32), tensor(1, (8, 3, 3, 3), F32)
    >>> str(build(Conv2d, [x, w, None], lambda: 2, {"stride": 2}).out)
    't2 f32[2,8,4,4]'

    Raises:
        ShapeError, DTypeError: the inputs do not fit.
        TypeError: a field is missing, or is not one of `kind`; the number of inputs is wrong.
        ValueError: a value is not one that its field can hold.
    """
    return build_typed(kind, inputs, new_id, static, given)[0]


def build_typed(
    kind: type[OpT],
    inputs: Sequence[Operand],
    new_id: Callable[[], int],
    static: Mapping[str, object],
    given: Given = NOTHING,
) -> tuple[OpT, list[TensorIr]]:
    """`build`, and the outputs of the operation, in declared order.

    Raises:
        ShapeError, DTypeError, TypeError, ValueError: as `build`.
    """
    flat = _filled(kind, inputs, static)
    absent = TensorIr(TensorId(0), Shape(()), NOT_INIT, _placeholder_dtype(flat))
    outputs = [slot for slot in _slots(kind) if slot.role in (Role.OUT, Role.OPT_OUT, Role.OUT_LIST)]
    draft = _nest(kind, flat | {s.path: () if s.role is Role.OUT_LIST else absent for s in outputs})
    made = [
        None if type is None else TensorIr(TensorId(new_id()), Shape(type.dims), NOT_INIT, type.dtype)
        for type in infer(draft, given)
    ]
    return assemble(kind, flat, made), [tensor for tensor in made if tensor is not None]


def build_with(
    kind: type[OpT], inputs: Sequence[Operand], outputs: Sequence[TensorIr | None], static: Mapping[str, object]
) -> OpT:
    """The operation of `kind` on `inputs` with these outputs, whatever the shape rule says.

    Raises:
        TypeError, ValueError: as `build`.
    """
    return assemble(kind, _filled(kind, inputs, static), outputs)


def assemble(kind: type[OpT], flat: Mapping[str, object], outputs: Sequence[TensorIr | None]) -> OpT:
    """The operation of `kind` with all fields but the outputs by path, and the outputs in order."""
    given = iter(outputs)
    filled = dict(flat)
    for slot in _slots(kind):
        if slot.role is Role.OUT_LIST:
            filled[slot.path] = tuple(given)
        elif slot.role in (Role.OUT, Role.OPT_OUT):
            filled[slot.path] = next(given)
    return _nest(kind, filled)


def _placeholder_dtype(flat: Mapping[str, object]) -> Any:
    tensors = (value for value in flat.values() if isinstance(value, TensorIr))
    return next((t.dtype for t in tensors), None)


def _filled(kind: type[Op], inputs: Sequence[Operand], static: Mapping[str, object]) -> dict[str, object]:
    """Every field but the outputs, by path."""
    given, unused = iter(inputs), dict(static)
    flat: dict[str, object] = {}
    for slot in _slots(kind):
        if slot.role in (Role.IN, Role.OPT_IN, Role.IN_LIST):
            flat[slot.path] = _operand(kind, slot, given)
        elif slot.role is None:
            flat[slot.path] = _static(kind, slot, unused, _rank(flat))
    if extra := len(list(given)):
        raise TypeError(f"{kind.__name__}: expected {len(inputs) - extra} tensors, got {len(inputs)}")
    if unused:
        names = ", ".join(parameters(kind))
        raise TypeError(f"{kind.__name__}: has no field {', '.join(unused)}; it has {names}")
    return flat


def _operand(kind: type[Op], slot: _Slot, given: Iterator[Operand]) -> Operand:
    value = next(given, None)
    if value is None and slot.role is not Role.OPT_IN:
        raise TypeError(f"{kind.__name__}.{slot.path}: expected a tensor, got none")
    if slot.role is Role.IN_LIST:
        return tuple(cast("Sequence[TensorIr]", value))
    if value is not None and not isinstance(value, TensorIr):
        raise TypeError(f"{kind.__name__}.{slot.path}: expected one tensor, got {len(value)}")
    return value


def _rank(flat: Mapping[str, object]) -> int:
    first = next(iter(flat.values()), None)
    if isinstance(first, tuple) and first:
        first = cast("tuple[object, ...]", first)[0]
    return len(first.shape.dims) if isinstance(first, TensorIr) else 0


def _static(kind: type[Op], slot: _Slot, unused: dict[str, object], rank: int) -> object:
    where = f"{kind.__name__}.{slot.path}"
    if slot.record is None or slot.name in unused:
        return _value(where, slot.name, slot.type, slot.is_scalar, unused, rank)
    hints = _hints(slot.record)
    made = {
        name: _value(f"{where}.{name}", name, hint, _is_scalar(hint), unused, rank, _OPTION_DEFAULTS)
        for name, hint in hints.items()
    }
    return slot.record(**made)


def _value(
    where: str,
    name: str,
    hint: Any,
    is_scalar: bool,
    unused: dict[str, object],
    rank: int,
    defaults: Mapping[str, object] | None = None,
) -> object:
    default = (defaults or {}).get(name, _DEFAULTS.get(name, _REQUIRED))
    alias = _AXIS_NAMES.get(name, "")
    value = unused.pop(alias if alias in unused and name not in unused else name, default)
    bare = _bare(hint)
    if value is _REQUIRED and NoneType in get_args(bare):
        value = None
    if value is _REQUIRED:
        raise TypeError(f"{where}: missing; expected {getattr(bare, '__name__', bare)}")
    if is_scalar:
        return scalar(value) if isinstance(value, bool | int | float) else value
    if name in _AXES:
        value = _counted(value, rank)
    try:
        return msgspec.convert(_spread(value, bare), hint)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _counted(value: object, rank: int) -> object:
    """Axes counted from the front: -1 is the last."""
    if isinstance(value, int):
        return value + rank if -rank <= value < 0 else value
    if isinstance(value, list | tuple):
        return tuple(_counted(v, rank) for v in cast("Sequence[object]", value))
    return value


def _spread(value: object, hint: Any) -> object:
    """A number in the place of a tuple of known length stands for a tuple of itself."""
    bare = _bare(hint)
    items = get_args(bare)
    if isinstance(value, int) and get_origin(bare) is tuple and Ellipsis not in items:
        return tuple(_spread(value, item) for item in items)
    return value


def _nest(record: Any, flat: Mapping[str, object]) -> Any:
    """`record` from its fields by path."""
    if all("." not in path for path in flat):
        return record(**flat)
    made: dict[str, Any] = {}
    hints = _hints(record)
    for name in record.__struct_fields__:
        inner = {path.removeprefix(f"{name}."): v for path, v in flat.items() if path.startswith(f"{name}.")}
        made[name] = _nest(_record_in(hints[name]), inner) if inner else flat[name]
    return record(**made)
