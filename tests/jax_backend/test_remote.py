"""The protocol without a socket: every message, refusal, failure and lifecycle."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ir
from ir import F32, operation, tensor
from ir.dtype import BOOL, F64, I32, BoolStore, DType, ParamDType
from ir.operation import GraphBindings
from ir.tensor import NOT_INIT, READ_WRITE, TensorId
from ir.wire import codec
from ir.wire.capture import CaptureReader
from ir.wire.messages import (
    Close,
    DTypeUsage,
    ExecuteGraph,
    ExposeTensorLocal,
    ExposeTensorRemote,
    ProfileAbandon,
    ProfileEnd,
    ProfileStart,
    ReadTensor,
    RegisterAlias,
    RegisterAndExecuteGraph,
    RegisterOperation,
    RegisterTensor,
    RegisterTensorLocal,
    RegisterTensorRemote,
    RemoteMessage,
    Seed,
    SyncBackend,
    TaskResponse,
    TaskResponseContent,
    decode_batch,
    decode_response,
    encode_batch,
)
from ir.wire.release import PROTOCOL_1
from ir.wire.values import Address, PeerAddr, PeerId, ProfileOptions, ProfileToken, SessionId, TensorRemote
from jax_backend import executable
from jax_backend.answers import Read
from jax_backend.cache import ProgramCache
from jax_backend.dispatch import LocalTransfer, RemoteTransfer
from jax_backend.host import from_numpy
from jax_backend.remote import SETTINGS, Host, Limits, RemoteSession
from jax_backend.types import Device
from tests.ir.wire_samples import FIXTURES, Sample, samples
from tests.remote_client import DIMS, STREAM, add, data, drop, failure, frames, init, read, sync, t, upload, values

cache = ProgramCache()


@pytest.fixture
def host() -> Host:
    return Host(jax.devices(), cache)


@pytest.fixture
def session(host: Host) -> RemoteSession:
    return opened(host, 1)


def opened(host: Host, number: int, *, process: str = "here", **handshake: Any) -> RemoteSession:
    session = RemoteSession(host, process, number)
    (greeting,) = session.handle(frames(init(**handshake)))
    assert session.recorder is not None, greeting
    return session


def answers(session: RemoteSession, *messages: RemoteMessage) -> list[TaskResponse]:
    """What the session answers to one frame of `messages`, by way of the wire."""
    frame = encode_batch(messages, session.release)
    return [decode_response(session.encode(a), session.release) for a in session.handle(frame)]


def ask(session: RemoteSession, *messages: RemoteMessage) -> TaskResponseContent:
    (answer,) = answers(session, *messages)
    return answer.content


# ---- handshake


def refusal(host: Host, frame: bytes) -> tuple[TaskResponseContent | None, str, int | None]:
    session = RemoteSession(host, "here", 50)
    found = [decode_response(session.encode(a)) for a in session.handle(frame)]
    assert session.recorder is None
    assert session.end is not None
    assert all(a.id == 0 for a in found)
    return found[0].content if found else None, session.end.reason, session.end.close_code


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        frames(),
        frames(init(), init()),
        frames(sync(0)),
        frames(init(version=0)),
        frames(init(version=3)),
        frames(init(version=6, device=99)),
    ],
    ids=["nothing", "garbage", "no message", "two", "a task", "version 0", "version 3", "version 6"],
)
def test_a_first_frame_that_is_no_handshake_is_told_the_version(host: Host, frame: bytes) -> None:
    content, _, code = refusal(host, frame)
    assert content is not None
    assert content.InitRefused.IncompatibleProtocol.server_version == 2
    assert code == 1000


def test_refusals_come_in_the_order_of_the_stock_server() -> None:
    host = Host(jax.devices(), cache, token=b"word")
    opened(host, 7, session=5, token=b"word")
    wrong = {"version": 9, "token": b"", "device": 4, "session": 5}
    right = {"version": 2, "token": b"word", "device": 0, "session": 6}
    seen: list[str] = []
    for name in wrong:
        content, _, code = refusal(host, frames(init(**wrong)))
        seen.append("dropped" if content is None else str(content.InitRefused))
        assert code == (None if content is None else 1000)
        wrong[name] = right[name]
    assert seen == [
        "Refusal(NoSuchDevice=UNSET, IncompatibleProtocol=ServerVersion(server_version=2))",
        "Unauthorized",
        "Refusal(NoSuchDevice=DeviceCount(device_count=4), IncompatibleProtocol=UNSET)",
        "dropped",
    ]


def test_the_greeting_is_the_stock_servers_but_for_what_is_ours(host: Host) -> None:
    session = RemoteSession(host, "here", 1)
    (greeting,) = session.handle(frames(init(device=2)))
    # protocol.md 4: [version, [float, int, bool, [scheme, propagation]], device count, peer]
    scheme = ["Q8F", {"PackedU32": 0}, "Symmetric", None, None]
    settings = ["F32", "I32", "Native", [scheme, "Inhibit"]]
    assert msgpack.unpackb(session.encode(greeting)) == [{"Init": [2, settings, 4, None]}, 0]
    assert session.device_index == 2


def test_a_session_id_is_free_again_after_its_session(host: Host) -> None:
    first = opened(host, 1, session=5)
    assert refusal(host, frames(init(session=5)))[2] is None
    first.close()
    opened(host, 2, session=5)


def test_a_client_of_protocol_1_is_served_in_its_own_records(host: Host) -> None:
    session = RemoteSession(host, "here", 1)
    (greeting,) = session.handle(frames(init(version=1)))
    scheme = ["Q8F", "F32", {"PackedU32": 0}, "Tensor", "Symmetric"]
    settings = ["F32", "I32", "Native", [scheme, "Inhibit"]]
    assert msgpack.unpackb(session.encode(greeting)) == [{"Init": [1, settings, 4, None]}, 0]
    assert session.release is PROTOCOL_1
    conv = ir.Conv1d(
        tensor(0, (1, 1, 4), F32), tensor(1, (1, 1, 3), F32), None,
        ir.Conv1dOptions((1,), ((1, 1),), (1,), 1), tensor(2, (1, 1, 4), F32, NOT_INIT),
    )  # fmt: skip
    content = ask(
        session,
        upload(0, 1.0, (1, 1, 4)),
        upload(1, 1.0, (1, 1, 3)),
        RegisterOperation(STREAM, operation(conv)),
        read(0, 2, (1, 1, 4)),
    )
    np.testing.assert_array_equal(values(content), [[[2.0, 3.0, 3.0, 2.0]]])
    assert "99" in failure(ask(session, read(1, 99)))


def test_a_client_of_protocol_1_knows_no_refusal_and_is_dropped(host: Host) -> None:
    session = RemoteSession(host, "here", 1)
    assert session.handle(frames(init(version=1, device=9))) == []
    assert session.end is not None
    assert session.end.close_code is None


# ---- every message


@pytest.mark.parametrize(
    "sample", [s for s in samples("messages") if s.type == "seq<RemoteMessage>"], ids=lambda s: str(s)
)
def test_every_message_of_the_golden_files_leaves_the_session_alive(host: Host, sample: Sample) -> None:
    session = opened(host, 1)
    frame = sample.data
    expected = {
        ReadTensor: "ReadTensor",
        SyncBackend: "SyncBackend",
        DTypeUsage: "DTypeUsage",
        ProfileStart: "ProfileStart",
        ProfileEnd: "ProfileEnd",
    }
    asked = [(expected[type(m)], m.request_id) for m in decode_batch(frame) if type(m) in expected]
    found = [decode_response(session.encode(a)) for a in session.handle(frame)]
    while session.awaits is not None:
        found += [decode_response(session.encode(a)) for a in session.supply(ir.IrError("no other side here"))]
    ends = any(isinstance(m, Close) or type(m).__name__ == "SessionInit" for m in decode_batch(frame))
    assert (session.end is not None) == ends
    if not ends:
        assert [(a.content.variant, a.id) for a in found] == asked
        answers(session, upload(900, 1.0))
        np.testing.assert_array_equal(values(ask(session, read(901, 900))), np.full(DIMS, 1.0))
    session.close()


class Traced:
    """In place of a compiled program: traced, but run as zeros of the shapes that came out.

    What is under test is everything around it; that the numbers are right too is for `test_replay`.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], donated: object, device: Device) -> None:
        with jax.default_device(device):
            shapes = jax.eval_shape(function, *arguments)
            self._made = [jax.numpy.zeros(made.shape, made.dtype) for made in shapes]

    def __call__(self, *inputs: object) -> list[jax.Array]:
        return self._made

    def memory_analysis(self) -> None:
        return None


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_recorded_client_gets_answers_of_the_recorded_form(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(executable, "compile_for", Traced)
    with path.open("rb") as stream:
        recorded = list(CaptureReader(stream))
    session = RemoteSession(Host(jax.devices(), ProgramCache()), "here", 1)
    theirs = {decode_response(f.data).id: f.data for f in recorded[2:] if f.side == "s"}
    for frame in recorded:
        for answer in session.handle(frame.data) if frame.side == "c" else ():
            got = session.encode(answer)
            if isinstance(answer, Read):
                want = theirs.pop(answer.request_id)
                # Flex answers some reads of i32 with i64; the dtype that was asked for is the one that clients can use.
                zeros = from_numpy(np.zeros(decode_response(want).content.ReadTensor.Ok.shape), answer.tensor.dtype)
                is_computed = got == codec.encode([{"ReadTensor": {"Ok": zeros}}, answer.request_id])
                assert is_computed or got == want  # the tour reads an upload back
    assert theirs == {}
    assert session.end is None
    session.close()


# ---- failures


def test_an_alias_of_nothing_fails_the_new_id(session: RemoteSession) -> None:
    content = ask(session, RegisterAlias(STREAM, TensorId(5), TensorId(4)), read(0, 5))
    assert failure(content) == "RegisterAlias: no tensor has the id 4"
    content = ask(session, upload(4, 1.0), RegisterAlias(STREAM, TensorId(5), TensorId(4)), drop(4), read(1, 5))
    np.testing.assert_array_equal(values(content), np.full(DIMS, 1.0))


def test_a_failure_passes_on_to_what_depends_on_it(session: RemoteSession) -> None:
    found = answers(session, upload(0, 1.0), add(0, 99, 1), add(1, 0, 2), add(0, 0, 3), read(0, 2), read(1, 3), sync(2))
    assert "input t99 was never made" in failure(found[0].content)
    np.testing.assert_array_equal(values(found[1].content), np.full(DIMS, 2.0))
    assert found[2].content.SyncBackend.Ok is None  # the read has reported it


def test_a_read_write_read_of_a_failure_ends_it(session: RemoteSession) -> None:
    ask(session, add(98, 99, 1), read(0, 1, status=READ_WRITE))
    assert "its last use is past" in failure(ask(session, read(1, 1)))


def test_a_sync_reports_each_failure_once(session: RemoteSession) -> None:
    found = answers(session, add(98, 99, 1), sync(0), add(96, 97, 2), sync(1), sync(2))
    assert "t98" in failure(found[0].content)
    assert "t96" in failure(found[1].content)
    assert found[2].content.SyncBackend.Ok is None


def test_an_unknown_graph_fails_the_outputs_that_it_names(session: RemoteSession) -> None:
    bindings = GraphBindings(((TensorId(0), TensorId(7)),), (), (), ())
    assert "no graph is registered under 3" in failure(ask(session, ExecuteGraph(STREAM, 3, bindings), read(0, 7)))


def test_an_unknown_custom_operation_is_named(session: RemoteSession) -> None:
    custom = ir.Custom("os.system", (t(0),), (t(1, status=NOT_INIT),), ())
    message = RegisterOperation(STREAM, operation(custom))
    assert "no handler for 'os.system'" in failure(ask(session, upload(0, 1.0), message, read(0, 1)))


def test_a_read_larger_than_a_message_is_refused(session: RemoteSession) -> None:
    assert "read it in slices" in failure(ask(session, read(0, 1, (1 << 28,))))


def test_a_defect_ends_its_task_only(session: RemoteSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError("ours")

    assert session.recorder is not None
    for name in ("register_operation", "read_tensor", "sync", "register_tensor_data_id"):
        monkeypatch.setattr(session.recorder, name, defect)
    assert failure(ask(session, sync(1))) == "SyncBackend: ZeroDivisionError: ours"
    assert failure(ask(session, add(0, 0, 1), read(2, 1))) == "ReadTensor: ZeroDivisionError: ours"
    monkeypatch.undo()
    assert failure(ask(session, read(3, 1))) == "RegisterOperation: ZeroDivisionError: ours"


@pytest.mark.parametrize("dtype", [BOOL, ParamDType(Bool=BoolStore.U32), I32, F64], ids=lambda d: d.short)
def test_a_read_answers_in_the_dtype_that_was_asked_for(session: RemoteSession, dtype: DType) -> None:
    given = from_numpy(np.array([[0, 1, 1]]), dtype)
    content = ask(
        session,
        RegisterTensor(STREAM, TensorId(0), given),
        ReadTensor(0, STREAM, tensor(0, (1, 3), dtype)),
    )
    assert content.ReadTensor.Ok == given


# ---- ends


def test_close_ends_the_session_and_what_follows_is_ignored(host: Host) -> None:
    session = opened(host, 1, session=8)
    found = answers(session, upload(0, 1.0), read(0, 0), Close(SessionId(8)), read(1, 0))
    assert [a.id for a in found] == [0]
    assert session.end is not None
    assert (session.end.close_code, session.end.is_error) == (1000, False)
    assert session.handle(frames(read(2, 0))) == []


@pytest.mark.parametrize("message", [Close(SessionId(9)), init(session=8)], ids=["close of another", "second init"])
def test_what_is_out_of_order_ends_the_session(host: Host, message: RemoteMessage) -> None:
    session = opened(host, 1, session=8)
    session.handle(frames(message))
    assert session.end is not None
    assert session.end.close_code == 1000


def test_an_undecodable_batch_runs_none_of_its_messages(session: RemoteSession) -> None:
    frame = bytearray(frames(upload(0, 1.0), upload(1, 1.0)))
    frame[-1] ^= 0xFF  # the last dtype
    assert session.handle(bytes(frame)) == []
    assert session.end is not None
    assert "undecodable batch: RegisterTensor" in session.end.reason
    assert session.recorder is not None
    assert len(session.recorder.handles) == 0


def test_too_many_tensors_end_the_session() -> None:
    session = opened(Host(jax.devices(), cache, limits=Limits(tensors=3)), 1)
    answers(session, *(upload(id, 1.0) for id in range(3)))
    assert session.end is None
    answers(session, upload(3, 1.0))
    assert session.end is not None
    assert "at most 3 tensors, got 4: raise --max-tensors" in session.end.reason


def test_too_many_graphs_end_the_session() -> None:
    session = opened(Host(jax.devices(), cache, limits=Limits(graphs=2)), 1)
    nothing = GraphBindings((), (), (), ())
    answers(session, *(RegisterAndExecuteGraph(STREAM, id, (), nothing) for id in range(3)))
    assert session.end is not None
    assert "at most 2 graphs, got 3" in session.end.reason


def test_a_closed_session_holds_nothing(host: Host) -> None:
    session = opened(host, 1)
    answers(session, upload(0, 1.0), add(0, 0, 1), sync(0), add(0, 1, 2))
    answers(session, ExposeTensorLocal(STREAM, t(1), 5))
    session.close()
    assert session.recorder is not None
    assert len(session.recorder.handles) == 0
    assert len(host.transfers.local) == 0
    assert host.bound == {}


# ---- transfers


def test_a_waiting_session_stands_still_until_it_is_supplied(host: Host) -> None:
    source, target = opened(host, 1), opened(host, 2, device=1)
    found = answers(target, sync(0), RegisterTensorLocal(STREAM, 7, TensorId(0)), add(0, 0, 1), read(1, 1))
    assert [a.id for a in found] == [0]
    assert target.awaits == LocalTransfer(("here", 7), TensorId(0))
    answers(source, upload(4, 2.0), ExposeTensorLocal(STREAM, t(4), 7))
    value = host.transfers.local.take(("here", 7), 2)
    assert value is not None
    (answer,) = target.supply(value)
    np.testing.assert_array_equal(values(decode_response(target.encode(answer)).content), np.full(DIMS, 4.0))
    assert target.awaits is None
    np.testing.assert_array_equal(values(ask(source, read(0, 4))), np.full(DIMS, 2.0))


def test_processes_do_not_take_each_others_tensors(host: Host) -> None:
    source, other = opened(host, 1, process="here"), opened(host, 2, process="elsewhere")
    answers(source, upload(0, 2.0), ExposeTensorLocal(STREAM, t(0), 7))
    answers(other, RegisterTensorLocal(STREAM, 7, TensorId(0)))
    assert other.awaits is not None


def test_a_failed_tensor_is_handed_over_as_its_failure(host: Host) -> None:
    source, target = opened(host, 1), opened(host, 2)
    answers(source, add(98, 99, 1), ExposeTensorLocal(STREAM, t(1), 7))
    assert "input t98 was never made" in failure(ask(target, RegisterTensorLocal(STREAM, 7, TensorId(0)), read(0, 0)))


def test_a_tensor_that_does_not_come_fails(session: RemoteSession) -> None:
    answers(session, RegisterTensorLocal(STREAM, 7, TensorId(0)), add(0, 0, 1), read(0, 1))
    (answer,) = session.supply(ir.IrError("it never came"))
    assert failure(decode_response(session.encode(answer)).content) == "it never came"


ADDRESS = Address("ws", "gpu7", 3000)
CAPABILITY = (1, 2, *[0] * 30)


def test_a_tensor_of_another_server_is_fetched_by_the_shell(session: RemoteSession) -> None:
    where = TensorRemote(CAPABILITY, PeerAddr(WebSocket=ADDRESS))
    assert answers(session, RegisterTensorRemote(STREAM, where, TensorId(0)), read(0, 0)) == []
    assert session.awaits == RemoteTransfer(ADDRESS, 0x0201, TensorId(0))
    (answer,) = session.supply(data(3.0))
    np.testing.assert_array_equal(values(decode_response(session.encode(answer)).content), np.full(DIMS, 3.0))


def test_an_exposed_tensor_outlives_its_session_and_is_given_out_as_often_as_asked(host: Host) -> None:
    session = opened(host, 1)
    expose = ExposeTensorRemote(STREAM, t(0, status=READ_WRITE), 2, CAPABILITY, PeerId(WebSocket=ADDRESS))
    answers(session, upload(0, 3.0), expose)
    session.close()
    taken = [host.transfers.remote.take(0x0201, -1) for _ in range(3)]
    assert [r and r.result() == data(3.0) for r in taken] == [True, True, None]


# ---- questions


@pytest.mark.parametrize(("dtype", "bits"), [(F32, 3), (BOOL, 3), (ParamDType(QFloat=SETTINGS.quantization.scheme), 1)])
def test_dtype_usage(session: RemoteSession, dtype: DType, bits: int) -> None:
    assert ask(session, DTypeUsage(4, dtype)).DTypeUsage == bits


def test_a_measurement_has_a_token_and_gives_a_time(session: RemoteSession) -> None:
    token = ask(session, ProfileStart(0, STREAM)).ProfileStart.Ok
    assert token == ProfileToken(0, STREAM.value)
    elapsed = ask(session, upload(0, 1.0), add(0, 0, 1), ProfileEnd(1, STREAM, token, ProfileOptions(True)))
    duration = elapsed.ProfileEnd.Ok
    assert 0 < duration.secs + duration.nanos / 1e9 < 60


def test_an_abandoned_measurement_is_unknown(session: RemoteSession) -> None:
    token = ask(session, ProfileStart(0, STREAM)).ProfileStart.Ok
    content = ask(session, ProfileAbandon(STREAM, token), ProfileEnd(1, STREAM, token, ProfileOptions(False)))
    assert failure(content) == "ProfileEnd.token: no measurement 0 is under way"


def test_a_measurement_that_begins_after_a_failure_reports_it(session: RemoteSession) -> None:
    assert "t98" in failure(ask(session, add(98, 99, 1), ProfileStart(0, STREAM)))


def test_equal_seeds_give_equal_draws(host: Host) -> None:
    def draw(seed: int) -> np.ndarray:
        random = ir.Random(t(0, status=NOT_INIT), "Default")
        with_seed = (Seed(seed), RegisterOperation(STREAM, operation(random)), read(0, 0))
        return values(ask(opened(host, seed), *with_seed))

    np.testing.assert_array_equal(draw(3), draw(3))
    assert not np.array_equal(draw(3), draw(4))


# ---- whatever else may come

BATCHES = [sample.data for sample in samples("messages") if sample.type == "seq<RemoteMessage>"]
CHANGES = st.lists(st.tuples(st.sampled_from(BATCHES), st.lists(st.tuples(st.integers(0), st.integers(0, 255)))))


@given(CHANGES)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_raise_and_none_leave_anything_behind(host: Host, batches: list[tuple[bytes, list[Any]]]) -> None:
    session = opened(host, 1)
    for batch, changes in batches:
        frame = bytearray(batch)
        for place, byte in changes:
            frame[place % len(frame)] = byte
        found = session.handle(bytes(frame))
        while session.awaits is not None:
            found += session.supply(ir.IrError("no other side here"))
        for answer in found:
            decode_response(session.encode(answer))
    session.close()
    assert session.recorder is not None
    assert len(session.recorder.handles) == len(host.transfers.local) == len(host.bound) == 0
