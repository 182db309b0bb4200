"""One type-directed walker between the layouts of a value.

A value in plain Python objects has three layouts. *Ours*: records are lists, as in msgpack, in the fields of `ir`.
*Compact*: the same in the fields of a release. *Named*: records are dicts by field name, as serde writes JSON.
`write` leads from ours to the others, `read` back; both follow the types of the fields, so no record is listed here.
`read` changes form and checks names; whether values fit their types is left to the `msgspec.convert` that follows.
"""

import re
from functools import cache
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct, inspect

from ir.errors import WireError
from ir.op import Op
from ir.operation import OperationIr
from ir.registry import BARE, WITH_DTYPE
from ir.wire.release import Change, Release
from ir.wire.tables import kind_table

Plain = Any
"""A value in plain Python objects: None, bool, int, float, str, bytes, list or tuple, dict."""

U64_MAX = 2**64 - 1
I64_MIN = -(2**63)
_BINARY = (inspect.MemoryViewType, inspect.BytesType)


class Layout(NamedTuple):
    """A release, and whether records are dicts by name."""

    release: Release
    named: bool


@cache
def node(type_: Any) -> inspect.Type:
    """The type as a tree."""
    return inspect.type_info(type_)


def node_of(value: object) -> inspect.Type:
    """The type of `value` as a tree."""
    return node(type(value))


def plain(value: Any) -> Plain:
    """A value of `ir` in our layout; operations stand under their names."""
    return msgspec.to_builtins(value, builtin_types=(bytes, memoryview))


def write(at: inspect.Type, value: Plain, to: Layout) -> Plain:
    """`value` of type `at`, in our layout, in the layout `to`.

    Raises:
        WireError: the release cannot say it.
    """
    match at:
        case inspect.StructType(cls=cls) if cls is OperationIr:
            return _operation(value, to, "", write)
        case inspect.StructType():
            return _write_struct(at, value, to)
        case inspect.UnionType():
            return write(_member(at, value), value, to)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [write(item, x, to) for x in value]
        case inspect.TupleType(item_types=types):
            return [write(t, x, to) for t, x in zip(types, value, strict=True)]
        case inspect.MemoryViewType() | inspect.BytesType() if to.named:
            return list(bytes(value))
        case _:
            return value


def _write_struct(at: inspect.StructType, value: Plain, to: Layout) -> Plain:
    change = to.release.changes.get(at.cls)
    if change is not None:
        value = plain(change.down(msgspec.convert(value, at.cls)))
        at = _struct(change.theirs)
    if not at.array_like:
        ((name, payload),) = value.items()
        return {name: write(_field(at, name).type, payload, to)}
    items = [write(f.type, x, to) for f, x in zip(at.fields, value, strict=True)]
    if to.named and not getattr(at.cls, "unnamed", False):
        return {f.encode_name: x for f, x in zip(at.fields, items, strict=True)}
    return items


def read(at: inspect.Type, value: Plain, source: Layout, path: str) -> Plain:
    """`value` of type `at`, in the layout `source`, in our layout. What does not fit the type passes unchanged.

    Raises:
        WireError: a name is unknown or missing, or a number cannot be what its type says.
    """
    match at:
        case inspect.StructType(cls=cls) if cls is OperationIr:
            return _operation(value, source, path, read)
        case inspect.StructType():
            return _read_struct(at, value, source, path)
        case inspect.UnionType():
            return read(_member(at, value), value, source, path)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item) if _is_list(value):
            return [read(item, x, source, f"{path}[{n}]") for n, x in enumerate(value)]
        case inspect.TupleType(item_types=types) if _is_list(value) and len(value) == len(types):
            return [read(t, x, source, f"{path}[{n}]") for n, (t, x) in enumerate(zip(types, value, strict=True))]
        case inspect.MemoryViewType() | inspect.BytesType() if source.named:
            return _read_bytes(value, path)
        case inspect.FloatType() if value is None:
            raise WireError(path, "JSON writes NaN and the infinities alike as null; use msgpack for them")
        case inspect.IntType() if isinstance(value, int) and not I64_MIN <= value <= U64_MAX:
            raise WireError(path, f"expected an integer of 64 bits, got {value:.3e}")
        case _:
            return value


def _read_struct(at: inspect.StructType, value: Plain, source: Layout, path: str) -> Plain:
    change = source.release.changes.get(at.cls)
    theirs = _struct(change.theirs) if change else at
    if not theirs.array_like:
        given = _map(value)
        if given is None or len(given) != 1:
            return value
        ((name, payload),) = given.items()
        inner = read(_field(theirs, name, path).type, payload, source, join(path, name))
        return _up(change, {name: inner}, path)
    if source.named and not getattr(theirs.cls, "unnamed", False):
        value = _by_name(theirs, value, path)
    if not _is_list(value) or len(value) != len(theirs.fields):
        return value if change is None else _up(change, value, path)
    pairs = zip(theirs.fields, value, strict=True)
    return _up(change, [read(f.type, x, source, join(path, f.encode_name)) for f, x in pairs], path)


def _up(change: "Change[Any, Any] | None", value: Plain, path: str) -> Plain:
    if change is None:
        return value
    return plain(change.up(convert(value, change.theirs, path)))


def _by_name(at: inspect.StructType, value: Plain, path: str) -> list[Plain]:
    names = [f.encode_name for f in at.fields]
    given = _map(value)
    if given is None:
        raise WireError(path, f"expected an object with {', '.join(names)}, got {type(value).__name__}")
    for name in names:
        if name not in given:
            raise WireError(join(path, name), "missing field")
    for name in given:
        if name not in names:
            raise WireError(join(path, name), f"unknown field; expected {', '.join(names)}")
    return [given[name] for name in names]


def _read_bytes(value: Plain, path: str) -> bytes:
    try:
        return bytes(cast("list[int]", value)) if isinstance(value, list) else b"" + value
    except (TypeError, ValueError) as error:
        raise WireError(path, "expected an array of integers from 0 to 255") from error


def _operation(value: Plain, layout: Layout, path: str, step: Any) -> Plain:
    """An operation `{family: payload}`: the payload in its layout, the names as they are."""
    family, payload = only(value, path)
    kinds = kind_table(layout.release).get(family)
    if kinds is None:
        raise WireError(join(path, family), "unknown operation family")
    path = join(path, family)
    args = (layout,) if step is write else (layout, path)
    if family in BARE:
        return {family: step(_payload_node(kinds[family]), payload, *args)}
    if family not in WITH_DTYPE:
        return {family: _kind(kinds, payload, layout, path, step)}
    if not _is_list(payload) or len(payload) != 2:
        raise WireError(path, "expected an array of dtype and operation")
    from ir.dtype import DType

    return {family: [step(node(DType), payload[0], *args), _kind(kinds, payload[1], layout, path, step)]}


def _kind(kinds: dict[str, type[Op]], value: Plain, layout: Layout, path: str, step: Any) -> Plain:
    name, payload = (value, None) if isinstance(value, str) else only(value, path)
    if name not in kinds:
        raise WireError(join(path, name), f"unknown operation of Burn {layout.release.name}")
    kind = kinds[name]
    if isinstance(value, str):
        if kind.__struct_fields__:
            raise WireError(join(path, name), "expected a payload, got the bare name")
        return value
    args = (layout,) if step is write else (layout, join(path, name))
    return {name: step(node(kind), payload, *args)}


def _payload_node(kind: type[Op]) -> inspect.Type:
    from ir.ops.control import Drop
    from ir.tensor import TensorIr

    return node(TensorIr if kind is Drop else kind)


def only(value: Plain, path: str) -> tuple[str, Plain]:
    """Name and payload of a map of one.

    Raises:
        WireError: it is something else.
    """
    given = _map(value)
    if given is None or len(given) != 1:
        raise WireError(path, f"expected a map of one variant, got {type(value).__name__}")
    ((name, payload),) = given.items()
    if type(name) is not str:
        raise WireError(path, f"expected a variant's name, got {name!r}")
    return name, payload


def _map(value: Plain) -> dict[str, Plain] | None:
    return cast("dict[str, Plain]", value) if isinstance(value, dict) else None


def _is_list(value: Plain) -> bool:
    return isinstance(value, list | tuple)


def _struct(type_: type[Struct]) -> inspect.StructType:
    found = node(type_)
    assert isinstance(found, inspect.StructType)
    return found


def _field(at: inspect.StructType, name: str, path: str = "") -> inspect.Field:
    for found in at.fields:
        if found.encode_name == name:
            return found
    names = ", ".join(f.encode_name for f in at.fields)
    raise WireError(join(path, str(name)), f"unknown variant; expected one of {names}")


def _member(at: inspect.UnionType, value: Plain) -> inspect.Type:
    """The member of a union that `value` can be: the members of the IR's unions differ in their form.

    What fits no member is left to `convert`, which names all of them.
    """
    match value:
        case None:
            wanted = (inspect.NoneType,)
        case str():
            wanted = (inspect.EnumType,)
        case dict() | list() | tuple():
            wanted = (inspect.StructType, inspect.VarTupleType)
        case _:
            wanted = (inspect.IntType, inspect.FloatType)
    return next((member for member in at.types if isinstance(member, wanted)), inspect.AnyType())


def join(path: str, name: str) -> str:
    """`path` with `name` below it."""
    return f"{path}.{name}" if path else name


def convert(value: Plain, type_: Any, path: str) -> Any:
    """`value` in our layout as a `type_`.

    Raises:
        WireError: it does not fit.
    """
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise explain(error, node(type_), path) from error


_PLACE = re.compile(r" - at `([^`]*)`$")
_KEY = re.compile(r" - at `key` in `([^`]*)`$")
_STEP = re.compile(r"\[(\d+)\]|\.(\w+)")
_SHORT = re.compile(r"Expected `array` of at least length (\d+), got (\d+)")


def explain(error: Exception, at: inspect.Type, path: str) -> WireError:
    """The `WireError` that says by name what msgspec says by index (`$[0][1]`), for a value of type `at` at `path`."""
    text = str(error)
    place = _KEY.search(text) or _PLACE.search(text)
    reason = text[: place.start()] if place else text
    here: inspect.Type = at
    for index, name in _STEP.findall(place[1]) if place else ():
        here, label = _descend(here, index, name)
        path = join(path, label) if label and label[0] != "[" else path + label
    short = _SHORT.match(reason)
    if short and isinstance(found := _array_in(here), inspect.StructType):
        reason = f"missing field `{found.fields[int(short[2])].encode_name}`: {reason}"
    return WireError(path, reason[:1].lower() + reason[1:])


def _descend(at: inspect.Type, index: str, name: str) -> tuple[inspect.Type, str]:
    if name:
        members = at.types if isinstance(at, inspect.UnionType) else (at,)
        for member in members:
            for found in member.fields if isinstance(member, inspect.StructType) else ():
                if found.encode_name == name:
                    return found.type, name
        return inspect.AnyType(), name
    match _array_in(at):
        case inspect.StructType(fields=fields) if int(index) < len(fields):
            return fields[int(index)].type, fields[int(index)].encode_name
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return item, f"[{index}]"
        case inspect.TupleType(item_types=types) if int(index) < len(types):
            return types[int(index)], f"[{index}]"
        case _:
            return inspect.AnyType(), f"[{index}]"


def _array_in(at: inspect.Type) -> inspect.Type:
    """`at`, or the member of a union that is an array on the wire."""
    if not isinstance(at, inspect.UnionType):
        return at
    arrays = (inspect.VarTupleType, inspect.TupleType, inspect.ListType)
    for member in at.types:
        if isinstance(member, arrays) or (isinstance(member, inspect.StructType) and member.array_like):
            return member
    return at
