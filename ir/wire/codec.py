"""Operations and all other values of the IR as msgpack and JSON.

msgpack is rmp-serde's compact form (records are arrays), JSON is serde_json's (records are objects; NaN and infinities
are null and do not come back).

- Refused as by Burn's decoder: arrays of another length than the record, unknown names, floats and bools for integers,
  integers over the width of their field, ext types, a bare name where a payload is due.
- Refused beyond that: records as maps, a unit variant as `{name: nil}`, names as bin or index, bytes as str, bytes
  after the value, usage bits above 4, a `ProfileToken` of one field.
- Forgiven as by Burn's decoder: wider integer forms, f32 and integers for f64.
- Forgiven beyond that: a variant that stands twice in its map inside a record, a name that stands twice in a JSON
  object (the last counts).

Encoding checks names and 64 bits, not the width of a field: records hold what was decoded, or what is ours.

Operations have a fast lane: `Raw` walks the bytes in C, which bounds every size before memory is taken; the names in
front of a payload are peeled by dict look-ups; the payload goes to the cached decoder of its kind.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from ir.dtype import DType, PlainDType
from ir.errors import IrError, WireError
from ir.op import Op
from ir.operation import OperationIr
from ir.ops.control import Drop, SyncCollective
from ir.registry import BARE, WITH_DTYPE
from ir.tensor import TensorIr
from ir.wire.release import PROTOCOL_2, Release
from ir.wire.tables import kind_table, known_forms

T = TypeVar("T")

_walk = Decoder(Raw).decode
_plain_decode = Decoder().decode
_map_of_raw = Decoder(dict[str, Raw]).decode
_dtype_and_raw = Decoder(tuple[DType, Raw]).decode
_encode = Encoder().encode

_MAP_OF_ONE = 0x81
_MAPS_OF_ONE = (b"\x81", b"\xde\x00\x01", b"\xdf\x00\x00\x00\x01")

_UNSIGNED = re.compile(rb"\de\d")
_STRING_OR_UNSIGNED = re.compile(rb'"(?:[^"\\]|\\.)*"|(?<=\d)e(?=\d)')

REFUSED = (msgspec.MsgspecError, RecursionError, IrError)
"""What decoding may raise inside; `WireError` is what leaves."""


def encode_operation(operation: OperationIr, release: Release = PROTOCOL_2) -> bytes:
    """`operation` as msgpack.

    Raises:
        WireError: the release does not know the form, or cannot say a value.
    """
    return encode(operation, release)


def decode_operation(data: bytes | memoryview, release: Release = PROTOCOL_2) -> OperationIr:
    """The operation that `data` holds.

    Raises:
        WireError: the bytes are no operation of the release.
    """
    data = bytes(data)
    check(data)
    return operation_at(data, 0, len(data), release, "")


def encode(value: Any, release: Release = PROTOCOL_2) -> bytes:
    """A value of the IR or of the protocol as msgpack.

    Raises:
        WireError: the release cannot say it.
    """
    return encode_form(to_compact(value, release))


def encode_form(form: Any) -> bytes:
    """What `to_compact` gave, as msgpack.

    Raises:
        WireError: an integer is wider than 64 bits.
    """
    try:
        return _encode(form)
    except OverflowError as error:
        raise WireError("", "an integer is wider than 64 bits") from error


def to_compact(value: Any, release: Release = PROTOCOL_2) -> Any:
    """A value as msgpack has it, ready for `encode_form`: names outside, and records where msgspec does the rest."""
    form = wire_form(value, release)
    if not release.changes:
        return form
    from ir.wire import layout

    return layout.write(layout.node_of(value), layout.plain(form), layout.Layout(release, named=False))


def decode(data: bytes | memoryview, type_: type[T], release: Release = PROTOCOL_2, path: str = "") -> T:
    """The value of type `type_` that `data` holds; `path` is where it stands, for messages.

    Raises:
        WireError: the bytes are no such value.
    """
    check(data, path)
    if type_ is OperationIr:
        return operation_at(bytes(data), 0, len(data), release, path)  # type: ignore[return-value]
    if not release.changes and not holds_operations(type_):
        try:
            return _decoder(type_)(data)
        except REFUSED as error:
            raise wire_error(error, type_, path) from error
    return from_layout(unpack(data, path), type_, release, False, path)


def to_json(value: Any, release: Release = PROTOCOL_2) -> bytes:
    """A value as serde_json writes it, without spaces.

    Raises:
        WireError: the release cannot say it.
    """
    return json_text(to_named(value, release))


def json_text(named: Any) -> bytes:
    """Dicts and lists as JSON text, exponents signed as serde_json does it now: `1e+16`, `1e-7` (1.0.145: `1e16`)."""
    text = msgspec.json.encode(named)
    if not _UNSIGNED.search(text):
        return text
    return _STRING_OR_UNSIGNED.sub(lambda found: b"e+" if found[0] == b"e" else found[0], text)


def to_named(value: Any, release: Release = PROTOCOL_2) -> Any:
    """A value as JSON has it, in dicts and lists; NaN and infinities stay floats."""
    from ir.wire import layout

    form = layout.plain(wire_form(value, release))
    return layout.write(layout.node_of(value), form, layout.Layout(release, named=True))


def from_json(text: bytes | str, type_: type[T], release: Release = PROTOCOL_2) -> T:
    """The value of type `type_` that a JSON text holds.

    Raises:
        WireError: the text is no such value, or holds null for a float (JSON has one null for NaN and both infinities).
    """
    return from_named(parse_json(text), type_, release)


def from_named(value: Any, type_: type[T], release: Release = PROTOCOL_2, path: str = "") -> T:
    """The value of type `type_` whose JSON was read into dicts and lists.

    Raises:
        WireError: it is no such value.
    """
    return from_layout(value, type_, release, True, path)


def from_layout(value: Any, type_: type[T], release: Release, named: bool, path: str) -> T:
    """The value of type `type_` that plain objects hold, records as dicts (`named`) or as lists.

    Raises:
        WireError: it is no such value.
    """
    from ir.wire import layout

    return _typed(value, type_, layout.Layout(release, named), path)


def parse_json(text: bytes | str) -> Any:
    """A JSON text as dicts and lists.

    Raises:
        WireError: the text is no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise WireError("", f"no JSON: {error}") from error


def unpack(data: Any, path: str) -> Any:
    """One msgpack value as plain objects.

    Raises:
        WireError: the bytes are none.
    """
    try:
        return _plain_decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(path, _reason(error)) from error


def check(data: bytes | memoryview, path: str = "") -> None:
    """Walk one msgpack value without taking memory for it.

    Raises:
        WireError: the bytes are truncated, malformed, nested too deeply, or more than one value.
    """
    try:
        _walk(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(path, _reason(error, len(data))) from error


def wire_error(error: Exception, type_: Any, path: str) -> WireError:
    """What left a decoder of `type_` at `path`, with the place by name."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, msgspec.ValidationError):
        from ir.wire import layout

        return layout.explain(error, layout.node(type_), path)
    return WireError(path, _reason(error))


def _reason(error: Exception, size: int | None = None) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, IrError):
        return str(error)
    text = str(error)[:1].lower() + str(error)[1:]
    return text if size is None else f"{text} ({size} bytes in all)"


def wire_form(value: Any, release: Release) -> Any:
    """`value` with each operation in it under its names, ready for msgspec."""
    if isinstance(value, OperationIr):
        return _operation_form(value, release)
    if isinstance(value, tuple):
        return [wire_form(item, release) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, Struct) and holds_operations(type(value)):
        return [wire_form(getattr(value, name), release) for name in value.__struct_fields__]
    return value


def _operation_form(operation: OperationIr, release: Release) -> dict[str, Any]:
    family, op = operation.family, operation.op
    if (family, type(op)) not in known_forms(release):
        raise WireError(operation.path, f"unknown operation of Burn {release.name}")
    if family in BARE:
        return {family: op.tensor if isinstance(op, Drop) else op}
    kind = op.kind
    payload = kind if isinstance(op, SyncCollective) else {kind: op}
    if family not in WITH_DTYPE:
        return {family: payload}
    if operation.dtype is None:
        raise WireError(operation.path, f"{family} carries a dtype beside the operation, got none")
    return {family: [operation.dtype, payload]}


@cache
def holds_operations(type_: Any) -> bool:
    """Whether values of `type_` have operations among their fields."""
    if isinstance(type_, type) and issubclass(type_, Struct):
        return any(f.type is OperationIr or OperationIr in get_args(f.type) for f in msgspec.structs.fields(type_))
    return False


def _typed(value: Any, type_: type[T], source: Any, path: str) -> T:
    """A value in the layout `source` as a `type_`."""
    from ir.wire import layout

    try:
        ours = layout.read(layout.node(type_), value, source, path)
        if type_ is OperationIr:
            return _operation_of(ours, path)  # type: ignore[return-value]
        if holds_operations(type_) and isinstance(ours, list):
            ours = _with_operations(cast("list[Any]", ours), type_, path)
        return msgspec.convert(ours, type_)
    except (*REFUSED, OverflowError) as error:
        raise wire_error(error, type_, path) from error


def _with_operations(ours: list[Any], type_: Any, path: str) -> list[Any]:
    """The fields of a record, in our layout, with its operations made."""
    from ir.wire.layout import join

    fields = msgspec.structs.fields(type_)
    for n, (field, value) in enumerate(zip(fields, ours, strict=False)):
        here = join(path, field.encode_name)
        if field.type is OperationIr:
            ours[n] = _operation_of(value, here)
        elif OperationIr in get_args(field.type) and isinstance(value, list):
            ours[n] = tuple(_operation_of(x, f"{here}[{i}]") for i, x in enumerate(cast("list[Any]", value)))
    return ours


def _operation_of(ours: Any, path: str) -> OperationIr:
    """An operation from plain objects in our layout, whose names were checked."""
    from ir.wire import layout

    family, payload = layout.only(ours, path)
    path = layout.join(path, family)
    if family in BARE:
        kind = known_forms_by_name(family)
        if kind is Drop:
            return OperationIr(family, None, Drop(layout.convert(payload, TensorIr, path)))
        return OperationIr(family, None, layout.convert(payload, kind, path))
    dtype = layout.convert(payload[0], DType, path) if family in WITH_DTYPE else None
    body = payload[1] if family in WITH_DTYPE else payload
    if isinstance(body, str):
        return OperationIr(family, dtype, SyncCollective())
    ((name, fields),) = body.items()
    kind = known_forms_by_name(f"{family}.{name}")
    return OperationIr(family, dtype, layout.convert(fields, kind, layout.join(path, name)))


def known_forms_by_name(path: str) -> type[Op]:
    """The kind that stands at `path` in the registry, such as `NumericFloat.Add`."""
    from ir.registry import forms

    return forms()[path].kind


# The fast lane.


@cache
def _decoder(type_: Any) -> Callable[[Any], Any]:
    return Decoder(type_).decode


def _drop(data: Any) -> Drop:
    return Drop(_decoder(TensorIr)(data))


def _named(name: str) -> bytes:
    return _encode(name)


class _Kinds(dict[bytes, Callable[[Any], Op]]):
    """Encoded name of a kind -> decoder of its payload, made at first use."""

    def __init__(self, kinds: dict[str, type[Op]]) -> None:
        self._types = {_named(name): kind for name, kind in kinds.items() if kind.__struct_fields__}

    def __missing__(self, key: bytes) -> Callable[[Any], Op]:
        kind = self._types[key]
        self[key] = made = _drop if kind is Drop else _decoder(kind)
        return made


_DTYPES = {_named(dtype.value): dtype for dtype in PlainDType}


@cache
def _heads(release: Release) -> dict[bytes, tuple[str, bool, _Kinds]]:
    """Encoded name of an outer variant -> its name, whether it carries a dtype, and its kinds."""
    table = kind_table(release)
    return {_named(family): (family, family in WITH_DTYPE, _Kinds(kinds)) for family, kinds in table.items()}


def operation_at(data: bytes, start: int, end: int, release: Release, path: str) -> OperationIr:
    """The operation in `data[start:end]`, which `check` has seen as one value.

    Raises:
        WireError: it is no operation of the release.
    """
    if release.changes:
        return from_layout(unpack(data[start:end], path), OperationIr, release, False, path)
    try:
        # Every name up to 31 bytes has its length in the low five bits of its first byte; the key holds that byte.
        at = start + 2 + (data[start + 1] & 31)
        key = data[start + 1 : at]
        family, has_dtype, kinds = _heads(release)[key]
        dtype = None
        if has_dtype:
            begin, at = at + 1, at + 2 + (data[at + 1] & 31)
            dtype = _DTYPES[data[begin:at]]
        elif family in BARE:
            return OperationIr(family, None, kinds[key](data[at:end]))
        begin, at = at + 1, at + 2 + (data[at + 1] & 31)
        if data[start] != _MAP_OF_ONE or data[begin - 1] != _MAP_OF_ONE:
            return _operation_slowly(data[start:end], release, path)
        return OperationIr(family, dtype, kinds[data[begin:at]](data[at:end]))
    except (*REFUSED, KeyError, IndexError):
        return _operation_slowly(data[start:end], release, path)


def _operation_slowly(data: bytes, release: Release, path: str) -> OperationIr:
    """The general lane: every form of a header, and the reason of a refusal."""
    from ir.wire.layout import join

    family, payload = variant(data, path)
    kinds = kind_table(release).get(family)
    path = join(path, family)
    if kinds is None:
        raise WireError(path, "unknown operation family")
    dtype = None
    try:
        if family in WITH_DTYPE:
            dtype, payload = _dtype_and_raw(payload)
    except REFUSED as error:
        raise wire_error(error, tuple[DType, Any], path) from error
    if family in BARE:
        name, kind = family, kinds[family]
    else:
        name, payload = variant(payload, path, bare=True)
        path = join(path, name)
        if name not in kinds:
            raise WireError(path, f"unknown operation of Burn {release.name}")
        kind = kinds[name]
        if payload is None:
            if kind.__struct_fields__:
                raise WireError(path, "expected a payload, got the bare name")
            return OperationIr(family, dtype, kind())
        if not kind.__struct_fields__:
            raise WireError(path, "expected the bare name, got a payload")
    try:
        return OperationIr(family, dtype, _drop(payload) if kind is Drop else _decoder(kind)(payload))
    except REFUSED as error:
        raise wire_error(error, TensorIr if kind is Drop else kind, path) from error


def variant(data: Any, path: str, *, bare: bool = False) -> tuple[str, Any]:
    """Name and payload (`Raw`) of an enum's value; with `bare` a name alone is allowed and has the payload None.

    Raises:
        WireError: it is neither.
    """
    try:
        if bare and (data[:1] if isinstance(data, bytes) else bytes(memoryview(data)[:1])) not in _HEADS_OF_MAPS:
            return _decoder(str)(data), None
        found = _map_of_raw(data)
    except REFUSED as error:
        raise wire_error(error, dict[str, Any], path) from error
    if len(found) != 1 or not bytes(memoryview(data)[:5]).startswith(_MAPS_OF_ONE):
        raise WireError(path, f"expected a map of one variant, got {len(found)}: {', '.join(found)}")
    ((name, payload),) = found.items()
    return name, payload


_HEADS_OF_MAPS = frozenset({b"\xde", b"\xdf", *(bytes([head]) for head in range(0x80, 0x90))})
