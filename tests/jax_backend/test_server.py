"""The running server and what clients do to it: no fault leaves a handle behind or disturbs a neighbour."""

import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import jax
import numpy as np
import pytest

import ir
from ir import F32, operation
from ir.tensor import NOT_INIT
from ir.wire.messages import (
    Close,
    DTypeUsage,
    RegisterOperation,
    Seed,
    TaskResponse,
)
from ir.wire.values import SessionId
from jax_backend import session_connection
from jax_backend.answers import Answer, Read
from jax_backend.cache import ProgramCache
from jax_backend.custom_ops import default_custom_ops
from jax_backend.remote import Host
from tests.remote_client import (
    CONTINUATION,
    DIMS,
    PING,
    PONG,
    PROGRAMS,
    SMALL,
    STREAM,
    TEXT,
    Client,
    Refused,
    RunningServer,
    WebSocket,
    add,
    drop,
    failure,
    frames,
    init,
    masked,
    read,
    running,
    sync,
    t,
    undisturbed,
    upload,
    values,
    wait_for,
)

# ---- the good case


def test_a_session_computes(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url, device=3) as client:
        assert client.greeting.Init.device_count == 4
        content = client.ask(Seed(1), upload(0, 1.5), add(0, 0, 1), add(1, 0, 2), read(7, 2))
        np.testing.assert_array_equal(values(content), np.full(DIMS, 4.5))
        assert client.ask(sync(8)).SyncBackend.Ok is None
        assert client.ask(DTypeUsage(9, F32)).DTypeUsage == 3


def test_reads_that_wait_for_the_device_hold_up_no_other_answer(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = threading.Event()
    response_of = session_connection.response_of

    def waiting(answer: Answer) -> TaskResponse:
        assert not isinstance(answer, Read) or leave.wait(60)
        return response_of(answer)

    monkeypatch.setattr(session_connection, "is_ready", lambda answer: not isinstance(answer, Read))
    monkeypatch.setattr(session_connection, "response_of", waiting)
    with Client(server.url, session=78) as client:
        client.tell(upload(0, 1.0), read(0, 0), add(0, 0, 1), read(1, 1), sync(2))
        assert client.answer().id == 2
        leave.set()
        client.tell(Close(SessionId(78)))
        assert [client.answer().id, client.answer().id] == [0, 1]
        assert client.close_code() == 1000
    server.wait_until_empty()


def test_the_server_tells_how_it_is(server: RunningServer) -> None:
    http = server.url.replace("ws://", "http://")
    with Client(server.url) as client:
        client.ask(upload(0, 1.0), read(0, 0))
        health = json.load(urllib.request.urlopen(f"{http}/healthz"))
        assert health == {"status": "ok", "sessions": 1}
        text = urllib.request.urlopen(f"{http}/metrics").read().decode()
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert lines["burn_xla_open_sessions"] == "1"
        assert lines["burn_xla_live_tensors"] == "1"
        assert lines['burn_xla_live_bytes{device="cpu:0"}'] == "24"
        assert float(lines["burn_xla_reads_total"]) >= 1
    server.wait_until_empty()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{http}/other")


def test_a_close_answers_what_was_asked_before(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url, session=77)
        client.hello()
        content = client.ask(upload(0, 1.0), add(0, 0, 1), read(0, 1), Close(SessionId(77)), read(1, 1))
        np.testing.assert_array_equal(values(content), np.full(DIMS, 2.0))
        assert client.close_code() == 1000


# ---- clients that break off or send nonsense


def test_a_client_killed_in_the_middle_of_a_step(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url)
        client.hello()
        client.tell(*(upload(i, 1.0) for i in range(20)))
        client.tell(*(add(i, i + 1, 100 + i) for i in range(19)), read(0, 105))
        client.hang_up()


def test_half_a_frame(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url)
        client.hello()
        client.tell(upload(0, 1.0))
        client.raw.sendall(b"\x82\xfe\x40\x00" + b"\0\0\0\0" + b"\x91" * 100)  # announces 16 KiB
        client.hang_up()


def test_half_a_frame_of_the_upgrade(server: RunningServer) -> None:
    with undisturbed(server), socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"GET /session HTTP/1.1\r\nHost: x\r\nUpgr")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00",
        b"\xc1",
        b"\x91\x81\xa4Task",
        b"\xdd\xff\xff\xff\xff",
        os.urandom(4096),
        b"\x91" * 5000,
        b"\x90\x90",
    ],
    ids=["empty", "no batch", "reserved byte", "cut off", "huge count", "random", "nested deeply", "two values"],
)
def test_garbage_ends_its_session_only(server: RunningServer, garbage: bytes) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.tell(upload(0, 1.0))
        client.send(garbage)
        assert client.close_code() == 1000


def test_garbage_before_the_handshake_is_refused_with_the_version(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url)
        client.send(b"\xc1")
        assert client.answer().content.InitRefused.IncompatibleProtocol.server_version == 2
        assert client.close_code() == 1000


def test_bytes_that_are_no_websocket(server: RunningServer) -> None:
    with undisturbed(server), socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(os.urandom(100) + b"\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 400")


def test_text_is_skipped_and_pings_are_answered(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.send(b"hello", opcode=TEXT)
        client.send(b"ho", opcode=PING)
        assert client.receive_frame() == (PONG, b"ho")
        assert client.ask(sync(0)).SyncBackend.Ok is None


def test_fragments_are_joined(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        frame = frames(upload(0, 1.0), read(3, 0))
        client.send(frame[:10], fin=False)
        client.send(frame[10:11], opcode=CONTINUATION, fin=False)
        client.send(frame[11:], opcode=CONTINUATION)
        np.testing.assert_array_equal(values(client.answer().content), np.full(DIMS, 1.0))


def test_a_session_that_never_greets_is_closed(server: RunningServer) -> None:
    with undisturbed(server):
        assert Client(server.url).close_code() == 1000


# ---- refusals


def test_a_wrong_version_is_refused(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url, version=6)
        assert client.hello().InitRefused.IncompatibleProtocol.server_version == 2
        assert client.close_code() == 1000


def test_a_wrong_device_index_is_refused(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url, device=4)
        assert client.hello().InitRefused.NoSuchDevice.device_count == 4
        assert client.close_code() == 1000


def test_a_wrong_token_is_refused() -> None:
    with running(Host(jax.devices(), PROGRAMS, token=b"secret")) as server:
        for token in (b"", b"secre", b"secret2"):
            client = Client(server.url, token=token)
            assert client.hello().InitRefused == "Unauthorized"
            assert client.close_code() == 1000
        with Client(server.url, token=b"secret") as client:
            assert client.ask(sync(0)).SyncBackend.Ok is None


def test_a_session_id_of_another_connection_is_dropped_without_a_word(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url, session=5) as first:
        second = Client(server.url, session=5)
        second.tell(init(session=5))
        assert second.close_code() == 1006
        assert first.ask(sync(0)).SyncBackend.Ok is None
    with Client(server.url, session=5) as again:
        assert again.ask(sync(0)).SyncBackend.Ok is None


def test_a_web_page_is_refused(server: RunningServer) -> None:
    with pytest.raises(Refused, match=r"403[^$]*pages of http://evil.example may not connect; see --origin"):
        WebSocket(f"{server.url}/session", "Origin: http://evil.example\r\n")


# ---- streams that are wrong


def test_ids_never_defined_fail_what_depends_on_them_only(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.tell(upload(0, 1.0), add(0, 99, 1), add(1, 0, 2), add(0, 0, 3))
        assert failure(client.ask(read(0, 99))) == "no tensor has the id 99: it was never made, or its last use is past"
        assert "input t99 was never made" in failure(client.ask(read(1, 2)))
        np.testing.assert_array_equal(values(client.ask(read(2, 3))), np.full(DIMS, 2.0))
        client.tell(upload(99, 5.0), add(0, 99, 1))
        np.testing.assert_array_equal(values(client.ask(read(3, 1))), np.full(DIMS, 6.0))


def test_a_double_drop_is_no_error(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.tell(upload(0, 1.0), drop(0), drop(0), drop(1234))
        assert client.ask(sync(0)).SyncBackend.Ok is None
        assert server.snapshot().live_tensors == 1  # the neighbour's


def test_an_operation_that_cannot_be_done_is_reported_by_one_sync(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        bad = RegisterOperation(STREAM, operation(ir.Reshape(t(0), t(1, (7,), NOT_INIT))))
        client.tell(upload(0, 1.0), bad)
        assert "Reshape" in failure(client.ask(sync(0)))
        assert client.ask(sync(1)).SyncBackend.Ok is None


# ---- many clients, slow clients


def test_64_sessions_at_once(server: RunningServer) -> None:
    with undisturbed(server):
        clients = [Client(server.url, device=n % 4) for n in range(63)]
        for client in clients:
            client.hello()
        for n, client in enumerate(clients):
            client.tell(upload(0, float(n)), add(0, 0, 1), read(0, 1))
        for n, client in enumerate(clients):
            np.testing.assert_array_equal(values(client.answer().content), np.full(DIMS, 2.0 * n))
        assert server.snapshot().open_sessions == 64
        for client in clients:
            client.hang_up()


def test_a_client_that_never_reads_is_not_worked_for_for_ever(server: RunningServer) -> None:
    dims = (SMALL // 8,)
    with undisturbed(server) as neighbour:
        client = Client(server.url)
        client.hello()
        client.tell(upload(0, 1.0, dims))
        stuck = threading.Event()

        def ask_for_ever() -> None:
            batch = masked(frames(read(0, 0, dims))) * 100
            client.raw.settimeout(5)
            with contextlib.suppress(OSError):
                while True:
                    client.raw.sendall(batch)
            stuck.set()

        thread = threading.Thread(target=ask_for_ever)
        thread.start()
        for request in range(5):
            assert neighbour.ask(sync(request)).SyncBackend.Ok is None
        assert stuck.wait(60)
        assert server.snapshot().counts.sent_bytes < 512 * SMALL
        client.hang_up()
        thread.join()


def test_a_slow_reader_gets_everything(server: RunningServer) -> None:
    dims = (SMALL // 8,)
    with undisturbed(server), Client(server.url) as client:
        client.tell(upload(0, 1.0, dims))
        for request in range(150):
            client.tell(read(request, 0, dims))
        time.sleep(0.5)
        found = [client.answer() for _ in range(150)]
        assert sorted(answer.id for answer in found) == list(range(150))  # a ready answer may overtake one that waits
        assert all(values(answer.content).nbytes == SMALL // 2 for answer in found)


def test_a_compilation_holds_up_nobody_else() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(op: ir.Custom, inputs: object) -> tuple[jax.Array, ...]:
        entered.set()
        assert leave.wait(60)
        return (jax.numpy.zeros(DIMS, jax.numpy.float32),)

    custom = default_custom_ops()
    custom.register("slow", slow)
    with (
        running(Host(jax.devices(), ProgramCache(custom))) as server,
        undisturbed(server) as neighbour,
        Client(server.url) as client,
    ):
        op = ir.Custom("slow", (t(0),), (t(1, status=NOT_INIT),), ())
        client.tell(upload(0, 1.0), RegisterOperation(STREAM, operation(op)), read(0, 1))
        assert entered.wait(60)
        content = neighbour.ask(add(0, 0, 5), read(5, 5))
        np.testing.assert_array_equal(values(content), np.full(DIMS, 4.0))
        leave.set()
        np.testing.assert_array_equal(values(client.answer().content), np.zeros(DIMS))


# ---- defects


@pytest.mark.parametrize("is_ready", [True, False], ids=["worker", "reader"])
def test_a_defect_while_answering_ends_its_session_only(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, is_ready: bool
) -> None:
    def defect(answer: object) -> None:
        raise ZeroDivisionError("ours")

    with undisturbed(server), Client(server.url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(session_connection, "is_ready", lambda answer: is_ready)
            patch.setattr(session_connection, "response_of", defect)
            client.tell(upload(0, 1.0), read(0, 0))
            assert client.close_code() == 1011
        wait_for(lambda: any("ZeroDivisionError: ours" in text for _, text in server.events))


# ---- the end


def test_a_stopping_server_answers_what_is_in_flight_and_admits_nobody() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(op: ir.Custom, inputs: object) -> tuple[jax.Array, ...]:
        entered.set()
        assert leave.wait(60)
        return (jax.numpy.ones(DIMS, jax.numpy.float32),)

    custom = default_custom_ops()
    custom.register("slow", slow)
    with running(Host(jax.devices(), ProgramCache(custom))) as server, Client(server.url) as client:
        op = ir.Custom("slow", (t(0),), (t(1, status=NOT_INIT),), ())
        client.tell(upload(0, 1.0), RegisterOperation(STREAM, operation(op)), read(0, 1))
        client.tell(add(1, 1, 2), read(1, 2))
        assert entered.wait(60)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(server.stop()))
        stopping.start()
        wait_for(lambda: refuses(server.port))
        leave.set()
        np.testing.assert_array_equal(values(client.answer().content), np.ones(DIMS))
        np.testing.assert_array_equal(values(client.answer().content), np.full(DIMS, 2.0))
        assert client.close_code() == 1000
        stopping.join()
        assert stopped == [True]


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_recorded_session_holds_both_sides(tmp_path: Path) -> None:
    from ir.wire.capture import read_messages
    from jax_backend.check import outcome
    from jax_backend.recorder import Recorder
    from jax_backend.replay import recorded_reads, replay

    with running(Host(jax.devices(), PROGRAMS), capture=tmp_path) as server:
        with Client(server.url) as client:
            client.ask(upload(0, 1.25), add(0, 0, 1), read(0, 1))
        server.wait_until_empty()
        wait_for(lambda: any(name == "ended" for name, _ in server.events))
    (file,) = tmp_path.glob("*.bxs")
    recorded = recorded_reads(read_messages(file))
    (answer,) = [outcome(a, recorded.get(a.request_id), check=True) for a in replay(read_messages(file), Recorder())]
    assert answer.comparison is not None
    assert answer.is_good
