"""The remote protocol's messages and recorded sessions against the bytes of Burn's own clients and server."""

import json
import os
import random
import time
import tracemalloc

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ir
from ir import F32, WireError
from ir.wire import PROTOCOL_1, PROTOCOL_2, decode, encode, from_json, messages, to_json
from ir.wire.capture import CaptureReader
from ir.wire.messages import (
    TASKS,
    Close,
    DTypeUsage,
    ExecuteGraph,
    ExternalCommMessage,
    ReadTensor,
    RegisterAndExecuteGraph,
    RegisterOperation,
    RegisterTensor,
    Seed,
    SessionId,
    SessionInit,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
    decode_batch,
    decode_response,
    encode_batch,
    encode_response,
    message_from_json,
    message_from_named,
    message_to_json,
)
from ir.wire.values import ExecutionError, Reason, StreamId
from tests.ir.wire_samples import FIXTURES, TYPES, Sample, samples

MESSAGES = samples("messages")
TASK_HEAD = b"\x91\x81\xa4Task"


def _check(sample: Sample) -> None:
    if sample.type in ("seq<RemoteMessage>", "Task"):
        head, text = (b"", sample.text) if sample.type != "Task" else (TASK_HEAD, b'[{"Task":%b}]' % sample.text)
        found = decode_batch(head + sample.data)
        assert encode_batch(found) == head + sample.data, sample
        assert b"[%b]" % b",".join(map(message_to_json, found)) == text, sample
        if not sample.has_non_finite:
            assert encode_batch([message_from_named(value) for value in json.loads(text)]) == head + sample.data, sample
        return
    type_ = TYPES[sample.type]
    value = decode(sample.data, type_)
    assert encode(value) == sample.data, sample
    assert to_json(value) == sample.text, sample
    assert encode(from_json(sample.text, type_)) == sample.data, sample


def test_every_sample_decodes_and_encodes_to_the_same_bytes_and_json() -> None:
    assert len(MESSAGES) == 147
    for sample in MESSAGES:
        _check(sample)


def test_samples_hold_every_task_and_every_answer() -> None:
    assert {s.variant for s in MESSAGES if s.type == "Task"} == set(TASKS)
    assert len(TASKS) == 16
    answers = {s.variant for s in MESSAGES if s.type == "TaskResponse"}
    assert answers == set(TaskResponseContent.__struct_fields__)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_frame_of_a_real_session_decodes_and_encodes_to_the_same_bytes(path: os.PathLike[str]) -> None:
    with open(path, "rb") as stream:
        frames = list(CaptureReader(stream))
    tasks: set[str] = set()
    for frame in frames:
        if frame.side == "c":
            found = decode_batch(frame.data)
            tasks |= {type(message).__name__ for message in found}
            assert encode_batch(found) == frame.data
        else:
            assert encode_response(decode_response(frame.data)) == frame.data
    fused = {"RegisterAndExecuteGraph", "ExecuteGraph"} if "fusion" in str(path) else set()
    assert tasks >= {"SessionInit", "RegisterTensor", "RegisterOperation", "ReadTensor", *fused}


def test_there_are_nine_recorded_sessions() -> None:
    assert len(FIXTURES) == 9


def test_a_batch_keeps_order_and_types() -> None:
    add = ir.operation(ir.Add(*(ir.tensor(n, (2, 3), F32) for n in range(3))))
    sent = [
        Seed(7),
        RegisterOperation(StreamId(3), add),
        RegisterOperation(StreamId(300), add),
        ReadTensor(0, StreamId(3), ir.tensor(2, (2, 3), F32)),
        Close(SessionId(2**64 - 1)),
    ]
    frame = encode_batch(sent)
    assert decode_batch(frame) == sent
    assert decode_batch(memoryview(frame)) == sent
    assert [message_from_json(message_to_json(message)) for message in sent] == sent


@pytest.mark.parametrize("count", [15, 16, 65_536], ids=["array", "array16", "array32"])
def test_batches_of_every_header_width_decode(count: int) -> None:
    neg = ir.operation(ir.Neg(ir.tensor(1, (2,), F32), ir.tensor(2, (2,), F32)))
    sent = [RegisterOperation(StreamId(0), neg)] * count
    assert decode_batch(encode_batch(sent)) == sent


def test_uploaded_data_is_a_view_of_the_frame() -> None:
    data = ir.TensorData(memoryview(bytes(8_000_000)), (2_000_000,), F32)
    frame = encode_batch([RegisterTensor(StreamId(0), ir.TensorId(1), data)])
    tracemalloc.start()
    try:
        (found,) = decode_batch(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, RegisterTensor)
    assert found.data.bytes.nbytes == 8_000_000
    assert found.data == data
    assert peak < 100_000


T = [[1], [[2]], "ReadOnly", "F32"]
REFUSALS = [
    ({"RegisterOperation": [[0], {"NumericFloat": ["F32", {"Add": [[[1], ["x"], "ReadOnly", "F32"], T, T]}]}]},
     "RegisterOperation.NumericFloat.Add.lhs.shape.dims"),
    ({"RegisterOperation": [[0], {"NumericFloat": ["F32", {"Add": [[[1], 2, "ReadOnly", "F32"], T, T]}]}]},
     "RegisterOperation.NumericFloat.Add.lhs.shape"),
    ({"RegisterOperation": [[300], {"NumericFloat": ["F32", {"Add": [T, T]}]}]}, "RegisterOperation.NumericFloat.Add"),
    ({"RegisterOperation": [[0], {"Nope": 1}]}, "RegisterOperation.Nope"),
    ({"RegisterOperation": [["a"], {"Drop": T}]}, "RegisterOperation.stream_id.value"),
    ({"RegisterOperation": [[0]]}, "RegisterOperation"),
    ({"RegisterAndExecuteGraph": [[0], 1, [{"Drop": T}, {"Drop": [[1], [[2]], "Read", "F32"]}], [[], [], [], []]]},
     "RegisterAndExecuteGraph.relative_graph[1].Drop.status"),
    ({"ExecuteGraph": [[0], 1, [[[[1], ["2"]]], [], [], []]]}, "ExecuteGraph.bindings.tensors[0][1].value"),
    ({"ExecuteGraph": [[0], 1, [[], [-1], [], []]]}, "ExecuteGraph.bindings.shapes[0]"),
    ({"ExecuteGraph": [[0], 1, [[], [], [{"Float": "a"}], []]]}, "ExecuteGraph.bindings.scalars[0].Float"),
    ({"RegisterTensor": [[0], [1], [b"1234", [2], "F32"]]}, "RegisterTensor"),
    ({"RegisterTensor": [[0], [1], [b"1234", [1], "F3"]]}, "RegisterTensor.data.dtype"),
    ({"RegisterTensorRemote": [[0], [[7] * 31, {"WebSocket": ["ws", "h", None]}], [1]]},
     "RegisterTensorRemote.remote.capability"),
    ({"ExposeTensorRemote": [[0], T, 2**32, [7] * 32, {"WebSocket": ["ws", "h", None]}]}, "ExposeTensorRemote.count"),
    ({"Seed": -1}, "Seed.seed"),
    ({"Seed": 1.0}, "Seed.seed"),
    ({"Sead": 1}, "Sead"),
    ({"SyncBackend": [1, [0], 3]}, "SyncBackend"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "path"), REFUSALS, ids=[p for _, p in REFUSALS])
def test_refusal_names_the_place_and_the_message(task: object, path: str) -> None:
    good = {"Task": {"Seed": 1}}
    with pytest.raises(WireError) as refused:
        decode_batch(msgpack.packb([good, good, {"Task": task}, good]))
    assert refused.value.path == path
    assert refused.value.reason.endswith("(message 2 of 4)")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([{"Init": [70_000, [1], 0, b""]}], "Init.version"),
        ([{"Init": [2, [1], 0]}], "Init"),
        ([{"Close": 1}], "Close"),
        ([{"Quit": 1}], "Quit"),
        (["Task"], ""),
        ({"Task": {"Seed": 1}}, ""),
        ([{"Task": {"Seed": 1}, "Close": [1]}], ""),
    ],
    ids=repr,
)
def test_refusal_outside_of_tasks(value: object, path: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_batch(msgpack.packb(value))
    assert refused.value.path == path


def test_response_refusal_names_the_place() -> None:
    for value, path in (
        ([{"ReadTensor": {"Ok": [b"", [0], "F"]}}, 1], "content.ReadTensor.Ok.dtype"),
        ([{"ReadTensor": {"No": 1}}, 1], "content.ReadTensor"),
        ([{"ProfileEnd": {"Ok": [1, 2**32]}}, 1], "content.ProfileEnd.Ok.nanos"),
        ([{"SyncBackend": {"Ok": []}}, 1], "content.SyncBackend.Ok"),
        ([{"SyncBackend": {"Ok": None}}], ""),
    ):
        with pytest.raises(WireError) as refused:
            decode_response(msgpack.packb(value))
        assert refused.value.path == path


def test_protocol_1_has_no_profiling_and_names_no_lost_device() -> None:
    with pytest.raises(WireError, match="unknown task"):
        encode_batch([messages.ProfileStart(1, StreamId(0))], PROTOCOL_1)
    lost = ExecutionError(DevicePoisoned=Reason("fault"))
    answer = TaskResponse(TaskResponseContent(ReadTensor=TensorResult(Err=lost)), 4)
    assert msgpack.unpackb(encode_response(answer, PROTOCOL_1)) == [{"ReadTensor": {"Err": {"Generic": ["fault"]}}}, 4]
    assert msgpack.unpackb(encode_response(answer)) == [{"ReadTensor": {"Err": {"DevicePoisoned": ["fault"]}}}, 4]


def test_protocol_1_messages_carry_its_operations() -> None:
    sample = next(s for s in samples("golden_protocol1") if s.variant == "Module.Conv2d")
    head = b"\x81\xb1RegisterOperation\x92\x91\x05"
    (found,) = decode_batch(TASK_HEAD + head + sample.data, PROTOCOL_1)
    assert isinstance(found, RegisterOperation)
    assert found.stream_id == StreamId(5)
    assert encode_batch([found], PROTOCOL_1) == TASK_HEAD + head + sample.data
    scheme = next(s for s in samples("golden_protocol1") if s.type == "QuantScheme").data
    usage = b"\x81\xaaDTypeUsage\x92\x01\x81\xa6QFloat" + scheme
    (asked,) = decode_batch(TASK_HEAD + usage, PROTOCOL_1)
    assert isinstance(asked, DTypeUsage)
    assert encode_batch([asked], PROTOCOL_1) == TASK_HEAD + usage


# Mutations: whatever bytes come, nothing but `WireError` leaves.

FRAMES = [s.data for s in MESSAGES if s.type == "seq<RemoteMessage>" and len(s.data) < 3000]
ANSWERS = [s.data for s in MESSAGES if s.type == "TaskResponse"]

PATCHES = (b"\xdd\xff\xff\xff\xff", b"\xc0", b"\x91" * 60)


def _mutate(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        match chance.randrange(5):
            case 0:
                del changed[at:]
            case 1:
                changed[at] = chance.randrange(256)
            case 2:
                changed[at] ^= 1 << chance.randrange(8)
            case 3:
                changed[at:at] = chance.randbytes(chance.randint(1, 5))
            case _:
                changed[at : at + chance.randint(1, 9)] = chance.choice(PATCHES)
        if not changed:
            return b""
    return bytes(changed)


def _only_wire_errors(frame: bytes) -> None:
    for read, write in ((decode_batch, encode_batch), (decode_response, encode_response)):
        try:
            found = read(frame)
        except WireError:
            continue
        assert read(write(found)) == found or b"\x7f\xf8" in frame or b"\xff\xf8" in frame


@settings(max_examples=150)
@given(st.binary(max_size=60))
@example(b"")
@example(b"\x90")
@example(b"\x91")
def test_arbitrary_bytes_raise_nothing_but_wire_errors(frame: bytes) -> None:
    _only_wire_errors(frame)


def test_mutated_frames_raise_nothing_but_wire_errors() -> None:
    chance = random.Random(20261130)
    seeds = FRAMES + ANSWERS
    end = time.monotonic() + 20
    refused = 0
    for count in range(6000):
        frame = _mutate(chance.choice(seeds), chance)
        for read in (decode_batch, decode_response):
            try:
                read(frame)
            except WireError:
                refused += 1
        assert time.monotonic() < end, f"only {count} mutations in 20 s"
    assert refused > 6000


def test_mutated_operations_of_both_releases_raise_nothing_but_wire_errors() -> None:
    chance = random.Random(7)
    for name, release in (("golden", PROTOCOL_2), ("golden_protocol1", PROTOCOL_1)):
        found = [s for s in samples(name) if s.type in TYPES]
        for sample in chance.choices(found, k=1500):
            try:
                decode(_mutate(sample.data, chance), TYPES[sample.type], release)
            except WireError:
                continue


def test_mutated_json_raises_nothing_but_wire_errors() -> None:
    chance = random.Random(11)
    found = [s for s in samples("golden") if s.type == "OperationIr"]
    for sample in chance.choices(found, k=1500):
        try:
            from_json(_mutate(sample.text, chance), ir.OperationIr)
        except WireError:
            continue
    for sample in chance.choices(MESSAGES, k=300):
        try:
            message_from_json(_mutate(sample.text, chance))
        except WireError:
            continue


@pytest.mark.parametrize("bomb", [b"\xdd\xff\xff\xff\xff", b"\x91" * 500_000, b"\x91\x81\xa4Task\xdf\xff\xff\xff\xff"])
def test_a_size_that_the_frame_does_not_keep_takes_no_memory(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        for read in (decode_batch, decode_response):
            with pytest.raises(WireError):
                read(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(bomb) + 2**20


def test_types_of_a_recorded_fusion_session() -> None:
    path = next(p for p in FIXTURES if p.stem == "mlp_fusion")
    with open(path, "rb") as stream:
        found = [m for frame in CaptureReader(stream) if frame.side == "c" for m in decode_batch(frame.data)]
    assert isinstance(found[0], SessionInit)
    known: set[int] = set()
    for message in found:
        if isinstance(message, RegisterAndExecuteGraph):
            known.add(message.graph_id)
        if isinstance(message, ExecuteGraph):
            assert message.graph_id in known
    assert known
    assert ExternalCommMessage(TensorRequest=3).payload == 3
