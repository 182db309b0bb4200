"""Operations and values of the IR against the bytes and the JSON that Burn writes."""

import math
import subprocess
import sys
import tracemalloc

import msgpack
import pytest

import ir
from ir import F32, Add, OperationIr, TensorIr, WireError, tensor
from ir.wire import (
    PROTOCOL_1,
    PROTOCOL_2,
    UNION,
    codec,
    decode,
    decode_operation,
    encode,
    encode_operation,
    from_json,
    to_json,
)
from ir.wire.release import Release
from tests.ir.wire_samples import TYPES, Sample, samples

GOLDEN = [(PROTOCOL_2, s) for s in samples("golden")] + [(PROTOCOL_1, s) for s in samples("golden_protocol1")]


def _check(release: Release, sample: Sample) -> None:
    type_ = TYPES[sample.type]
    value = decode(sample.data, type_, release)
    assert encode(value, release) == sample.data, sample
    # serde_json 1.0.145, which wrote the samples of protocol 1, has no sign in front of a positive exponent.
    text = sample.text.replace(b"e308", b"e+308")
    assert to_json(value, release) == text, sample
    if sample.has_non_finite:
        with pytest.raises(WireError, match="NaN and the infinities"):
            from_json(sample.text, type_, release)
    else:
        assert encode(from_json(sample.text, type_, release), release) == sample.data, sample


@pytest.mark.parametrize("release", [PROTOCOL_2, PROTOCOL_1], ids=["protocol2", "protocol1"])
def test_every_sample_decodes_and_encodes_to_the_same_bytes_and_json(release: Release) -> None:
    found = [sample for r, sample in GOLDEN if r is release]
    assert len(found) == {2: 667, 1: 798}[release.protocol]
    for sample in found:
        _check(release, sample)


@pytest.mark.parametrize(("release", "count"), [(PROTOCOL_2, 328), (PROTOCOL_1, 325)], ids=["protocol2", "protocol1"])
def test_samples_hold_every_form_of_the_registry(release: Release, count: int) -> None:
    seen = {s.variant for r, s in GOLDEN if r is release and s.type == "OperationIr"}
    known = {path for path, form in ir.forms().items() if form.kind.__name__ not in release.absent}
    assert len(known) == count
    assert known - seen == set()


def test_fast_and_general_lane_agree_on_every_operation() -> None:
    for release, sample in GOLDEN:
        if sample.type == "OperationIr" and release is PROTOCOL_2:
            wide = _with_wide_headers(sample.data)
            assert wide != sample.data
            assert encode_operation(decode_operation(wide)) == sample.data


def _with_wide_headers(data: bytes) -> bytes:
    """The same operation with a map16 header outside, which the fast lane does not know."""
    assert data[0] == 0x81
    return b"\xde\x00\x01" + data[1:]


def test_union_reads_and_writes_kinds_of_both_releases() -> None:
    rfft = ir.Rfft(tensor(1, (8,), F32), 0, None, tensor(2, (5,), F32), tensor(3, (5,), F32))
    pad = ir.Pad(
        tensor(1, (2,), F32), tensor(2, (4,), F32), ((1, 1),), ir.ops.numeric.PadConstant(Constant=ir.scalar(1.0))
    )
    for op in (rfft, pad):
        found = decode_operation(encode_operation(ir.operation(op), UNION), UNION)
        assert found == ir.operation(op)


@pytest.mark.parametrize(
    ("name", "release"), [("Rfft", PROTOCOL_2), ("SumDims", PROTOCOL_1), ("BatchNorm", PROTOCOL_1)]
)
def test_a_kind_of_another_release_is_refused_both_ways(name: str, release: Release) -> None:
    other = PROTOCOL_1 if release is PROTOCOL_2 else PROTOCOL_2
    sample = next(s for r, s in GOLDEN if r is other and s.variant.endswith(f".{name}"))
    operation = decode(sample.data, OperationIr, other)
    for refused in (
        lambda: encode(operation, release),
        lambda: decode(sample.data, OperationIr, release),
        lambda: to_json(operation, release),
        lambda: from_json(sample.text, OperationIr, release),
    ):
        with pytest.raises(WireError, match=rf"{name}: unknown operation of Burn {release.name}"):
            refused()


def test_padding_of_one_side_has_no_form_in_protocol_1() -> None:
    options = ir.Conv2dOptions((1, 1), ((1, 2), (0, 0)), (1, 1), 1)
    with pytest.raises(WireError, match=r"pads both sides alike, got \(1, 2\)"):
        encode(options, PROTOCOL_1)
    even = ir.Conv2dOptions((1, 1), ((1, 1), (3, 3)), (1, 1), 1)
    assert msgpack.unpackb(encode(even, PROTOCOL_1)) == [[1, 1], [1, 3], [1, 1], 1]
    assert decode(encode(even, PROTOCOL_1), ir.Conv2dOptions, PROTOCOL_1) == even


def _add(**changes: object) -> list[object]:
    fields: dict[str, object] = {
        "lhs": [[1], [[2, 3]], "ReadOnly", "F32"],
        "rhs": [[2], [[2, 3]], "ReadOnly", "F32"],
        "out": [[3], [[2, 3]], "NotInit", "F32"],
    }
    return list({**fields, **changes}.values())


def _numeric(payload: object, kind: str = "Add", dtype: object = "F32") -> dict[str, object]:
    return {"NumericFloat": [dtype, {kind: payload}]}


REFUSALS = [
    (_numeric(_add(lhs=[[1], [[2, "3"]], "ReadOnly", "F32"])), "NumericFloat.Add.lhs.shape.dims[1]", "expected `int`"),
    (_numeric(_add(lhs=[[1], [[2, 3.0]], "ReadOnly", "F32"])), "NumericFloat.Add.lhs.shape.dims[1]", "got `float`"),
    (_numeric(_add(lhs=[[1], [[2, True]], "ReadOnly", "F32"])), "NumericFloat.Add.lhs.shape.dims[1]", "got `bool`"),
    (_numeric(_add(lhs=[[1], [[-2]], "ReadOnly", "F32"])), "NumericFloat.Add.lhs.shape.dims[0]", ">= 0"),
    (_numeric(_add(lhs=[[1], [[2], 3], "ReadOnly", "F32"])), "NumericFloat.Add.lhs.shape", "at most length 1"),
    (_numeric(_add(rhs=[[1], [[2]], "readonly", "F32"])), "NumericFloat.Add.rhs.status", "'readonly'"),
    (_numeric(_add(rhs=[[1], [[2]], "ReadOnly", "F33"])), "NumericFloat.Add.rhs.dtype", "'F33'"),
    (_numeric(_add(rhs=[[1], [[2]], "ReadOnly", {"Bool": "x"}])), "NumericFloat.Add.rhs.dtype.Bool", "'x'"),
    (_numeric(_add(rhs=[[1], [[2]], "ReadOnly", {"bool": "U8"}])), "NumericFloat.Add.rhs.dtype", "`bool`"),
    (_numeric(_add(rhs=[[1], [[2]], "ReadOnly"])), "NumericFloat.Add.rhs", "missing field `dtype`"),
    (_numeric(_add(rhs=[[1], [[2]], "ReadOnly", "F32", 0])), "NumericFloat.Add.rhs", "at most length 4, got 5"),
    (_numeric(_add(rhs=None)), "NumericFloat.Add.rhs", "expected `array`"),
    (_numeric(_add()[:2]), "NumericFloat.Add", "missing field `out`"),
    (_numeric({}), "NumericFloat.Add", "got `object`"),
    (_numeric(_add(), kind="Ad"), "NumericFloat.Ad", "unknown operation of Burn 0.22.1"),
    (_numeric(_add(), dtype="F31"), "NumericFloat[0]", "'F31'"),
    ({"NumericFloat": {"Add": _add()}}, "NumericFloat", "expected `array`"),
    ({"NumericFloat": ["F32", "Add"]}, "NumericFloat.Add", "got the bare name"),
    ({"NumericFlt": ["F32", {"Add": _add()}]}, "NumericFlt", "unknown operation family"),
    ({"BaseFloat": {"Cat": [[], -1, [[3], [[2]], "NotInit", "F32"]]}}, "BaseFloat.Cat.dim", ">= 0"),
    ({"Distributed": {"SyncCollective": None}}, "Distributed.SyncCollective", "expected the bare name"),
    ({"Drop": [[1], [[]], "ReadWrite"]}, "Drop", "missing field `dtype`"),
    ({"Drop": _numeric(_add()), "Init": 1}, "", "expected a map of one variant, got 2"),
    ({}, "", "expected a map of one variant"),
    ("Drop", "", "expected `object`"),
    ({"NumericFloat": ["F32", {"AddScalar": [_add()[0], {"Float": "1"}, _add()[2]]}]},
     "NumericFloat.AddScalar.rhs.Float", "expected `float`"),
    ({"NumericFloat": ["F32", {"AddScalar": [_add()[0], {"Int": 2**63}, _add()[2]]}]},
     "NumericFloat.AddScalar.rhs.Int", "<="),
    ({"NumericFloat": ["F32", {"AddScalar": [_add()[0], {}, _add()[2]]}]},
     "NumericFloat.AddScalar.rhs", "exactly one variant"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "path", "reason"), REFUSALS, ids=[f"{p or 'outside'}-{r}" for _, p, r in REFUSALS])
def test_refusal_names_the_place(value: object, path: str, reason: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_operation(msgpack.packb(value))
    assert refused.value.path == path
    assert reason in refused.value.reason


JSON_REFUSALS = [
    ('{"Drop":{"id":{"value":1},"shape":{"dims":[]},"status":"ReadOnly"}}', "Drop.dtype", "missing field"),
    ('{"Drop":{"id":{"value":1,"x":2},"shape":{"dims":[]},"status":"ReadOnly","dtype":"F32"}}', "Drop.id.x", "unknown"),
    ('{"Drop":{"id":[1],"shape":{"dims":[]},"status":"ReadOnly","dtype":"F32"}}', "Drop.id", "expected an object"),
    ('{"Drop":{"id":{"value":18446744073709551616},"shape":{"dims":[]},"status":"ReadOnly","dtype":"F32"}}',
     "Drop.id.value", "64 bits"),
    ('{"Drop":{"id":{"value":1.5},"shape":{"dims":[]},"status":"ReadOnly","dtype":"F32"}}', "Drop.id.value", "`int`"),
    ('{"Drop":{"id":{"value":1},"shape":{"dims":[]},"status":"ReadOnly","dtype":{"Boll":"U8"}}}',
     "Drop.dtype.Boll", "unknown variant"),
    ('{"Drop":', "", "no JSON"),
    ("[" * 100_000, "", "no JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "reason"), JSON_REFUSALS, ids=[f"{p}-{r}" for _, p, r in JSON_REFUSALS])
def test_json_refusal_names_the_place(text: str, path: str, reason: str) -> None:
    with pytest.raises(WireError) as refused:
        from_json(text, OperationIr)
    assert refused.value.path == path
    assert reason in refused.value.reason


def test_every_prefix_of_an_operation_is_refused() -> None:
    data = encode_operation(ir.operation(Add(*(tensor(n, (2, 3), F32) for n in range(3)))))
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode_operation(data[:end])
    with pytest.raises(WireError, match="trailing"):
        decode_operation(data + b"\x00")


@pytest.mark.parametrize(
    "bomb",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91" * 1_000_000,
        b"\x81\xa1a" * 300_000,
        b"\x81\xa4Drop\x94\x91\x01\x91\xdd\xff\xff\xff\xff",
    ],
    ids=["array", "map", "bin", "str", "deep", "deep-map", "dims"],
)
def test_a_size_that_the_bytes_do_not_keep_takes_no_memory(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        for type_ in (OperationIr, TensorIr, ir.TensorData, ir.GraphBindings):
            for release in (PROTOCOL_2, PROTOCOL_1):
                with pytest.raises(WireError):
                    decode(bomb, type_, release)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(bomb) + 2**20


def test_tensor_data_is_a_view_of_the_message() -> None:
    data = encode(ir.TensorData(memoryview(bytes(4_000_000)), (1_000_000,), F32))
    tracemalloc.start()
    try:
        found = decode(data, ir.TensorData)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.bytes.nbytes == 4_000_000
    assert found.bytes.obj is data
    assert peak < 100_000


def test_tensor_data_of_another_length_is_refused() -> None:
    with pytest.raises(WireError, match=r"TensorData.bytes: expected 8 bytes for f32\[2\], got 4"):
        decode(msgpack.packb([b"1234", [2], "F32"]), ir.TensorData)


def test_encoding_refuses_what_no_decoder_would_take() -> None:
    with pytest.raises(WireError, match="wider than 64 bits"):
        encode(ir.TensorId(2**64))
    relu = ir.Relu(tensor(1, (2,), F32), tensor(2, (2,), F32))
    with pytest.raises(WireError, match=r"BaseFloat.Relu: unknown operation"):
        encode(OperationIr("BaseFloat", None, relu))
    with pytest.raises(WireError, match="carries a dtype"):
        encode(OperationIr("NumericFloat", None, Add(*(tensor(n, (2,), F32) for n in range(3)))))


def test_exponents_inside_names_stay_as_they_are() -> None:
    custom = ir.Custom('1e5"1e6', (), (), (ir.scalar(1e16), ir.scalar(1e-7), ir.scalar(-math.inf)))
    text = to_json(ir.operation(custom))
    assert text == (
        b'{"Custom":{"id":"1e5\\"1e6","inputs":[],"outputs":[],'
        b'"scalars":[{"Float":1e+16},{"Float":1e-7},{"Float":null}]}}'
    )


def test_importing_ir_does_not_load_the_wire() -> None:
    script = "import sys, ir; print([m for m in sys.modules if m.startswith(('ir.wire', 'jax', 'numpy'))])"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_wire_loads_neither_numpy_nor_jax() -> None:
    script = (
        "import sys, ir.wire.messages, ir.wire.capture; ir.wire.to_json(ir.scalar(1.0));"
        "print([m for m in sys.modules if m.split('.')[0] in ('jax', 'numpy', 'msgpack')])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_named_form_keeps_non_finite_floats() -> None:
    assert math.isnan(codec.to_named(ir.scalar(math.nan))["Float"])
