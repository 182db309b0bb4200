"""The limits of the running server: what is too large is refused, what just fits is served."""

import os
import struct
from pathlib import Path

import jax
import msgpack
import numpy as np
import pytest

import ir
from ir import F32, operation, tensor
from ir.tensor import NOT_INIT, READ_WRITE
from ir.wire.messages import RegisterOperation
from jax_backend.remote import Host
from tests.remote_client import (
    CONTINUATION,
    DIMS,
    PROGRAMS,
    SMALL,
    STREAM,
    Client,
    Refused,
    RunningServer,
    drop,
    failure,
    read,
    running,
    sync,
    t,
    undisturbed,
    upload,
    values,
    wait_for,
)


def test_fragments_count_together_against_the_limit(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.send(bytes(SMALL // 2), fin=False)
        client.send(bytes(SMALL // 2), opcode=CONTINUATION, fin=False)
        client.send(b"1", opcode=CONTINUATION)
        assert client.close_code() == 1009


def test_a_message_over_the_limit_is_refused(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.send(bytes(SMALL + 1))
        assert client.close_code() == 1009


def test_a_message_over_1_gib_is_refused_before_it_is_sent() -> None:
    with running(Host(jax.devices(), PROGRAMS)) as server, undisturbed(server), Client(server.url) as client:
        client.raw.sendall(b"\x82\xff" + struct.pack(">Q", 2**30 + 1) + b"\0\0\0\0")
        assert client.close_code() == 1009


def test_a_tensor_of_1_gib() -> None:
    dims, few = (2**28 - 64,), (4,)
    before = resident_bytes()
    with running(Host(jax.devices(), PROGRAMS)) as server, undisturbed(server), Client(server.url) as client:
        empty = msgpack.packb([{"Task": {"RegisterTensor": [[0], [0], [b"", dims, "F32"]]}}])
        start, end = empty.split(b"\xc4\x00")
        part = np.arange(1 << 18, dtype=np.float32).tobytes()
        num_bytes = 4 * dims[0]
        head = start + b"\xc6" + struct.pack(">I", num_bytes)
        size = len(head) + num_bytes + len(end)
        assert 2**30 - 300 < size <= 2**30
        client.raw.sendall(b"\x82\xff" + struct.pack(">Q", size) + b"\0\0\0\0" + head)
        for sent in range(0, num_bytes, len(part)):
            client.raw.sendall(part[: num_bytes - sent])
        client.raw.sendall(end)
        last = ir.Slice(t(0, dims, READ_WRITE), (ir.SliceRange(dims[0] - 4, dims[0], 1),), t(1, few, NOT_INIT))
        client.tell(RegisterOperation(STREAM, operation(last)), read(0, 1, few))
        first = dims[0] % (1 << 18) - 4
        np.testing.assert_array_equal(values(client.answer().content), np.arange(first, first + 4))
    wait_for(lambda: resident_bytes() < before + 2**28)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_upload_over_the_limit_fails_its_id(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        dims = (SMALL // 8 + 1,)
        client.tell(upload(0, 1.0, dims))
        assert "--max-tensor-bytes" in failure(client.ask(read(0, 0, dims)))
        client.tell(upload(0, 2.0))
        np.testing.assert_array_equal(values(client.ask(read(1, 0))), np.full(DIMS, 2.0))


def test_live_bytes_over_the_limit_fail_until_some_are_freed(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        dims = (SMALL // 8,)
        for id in range(17):
            client.tell(upload(id, 1.0, dims))
        assert "--max-live-bytes" in failure(client.ask(read(0, 16, (), READ_WRITE)))
        client.tell(drop(0), upload(16, 3.0, dims))
        np.testing.assert_array_equal(values(client.ask(read(1, 16, dims))), np.full(dims, 3.0))


def test_an_operation_larger_than_memory_fails_and_nothing_else(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        huge = tensor(1, (1 << 45,), F32, NOT_INIT)
        client.tell(RegisterOperation(STREAM, operation(ir.Zeros(huge))))
        assert "--max-live-bytes" in failure(client.ask(sync(0)))


def test_more_sessions_than_allowed_are_refused_in_words() -> None:
    with running(Host(jax.devices(), PROGRAMS), max_sessions=2) as server:
        with (
            Client(server.url),
            Client(server.url),
            pytest.raises(Refused, match=r"503[^$]*2 sessions are open, see --max-sessions"),
        ):
            Client(server.url)
        server.wait_until_empty()
        with Client(server.url) as client:
            assert client.ask(sync(0)).SyncBackend.Ok is None
