"""Tensors that go from session to session, from server to server, and through collectives."""

import socket
import time

import jax
import numpy as np
import pytest

import ir
from ir import operation
from ir.ops.control import DeviceId, ReduceOperation
from ir.tensor import NOT_INIT, READ_WRITE, TensorId
from ir.wire import codec
from ir.wire.messages import (
    ExposeTensorLocal,
    ExposeTensorRemote,
    ExternalCommMessage,
    RegisterOperation,
    RegisterTensorLocal,
    RegisterTensorRemote,
)
from ir.wire.values import Address, PeerAddr, PeerId, TensorRemote
from jax_backend.remote import Host
from tests.remote_client import (
    DIMS,
    PROGRAMS,
    STREAM,
    Client,
    RunningServer,
    WebSocket,
    add,
    data,
    failure,
    read,
    running,
    sync,
    t,
    undisturbed,
    upload,
    values,
)

# ---- transfers


@pytest.mark.parametrize("target_device", [0, 1])
@pytest.mark.parametrize("target_first", [False, True])
def test_a_tensor_moves_between_sessions_of_one_process(
    server: RunningServer, target_device: int, target_first: bool
) -> None:
    with undisturbed(server), Client(server.url) as source, Client(server.url, device=target_device) as target:
        source.tell(upload(0, 1.0), add(0, 0, 1))
        expose = ExposeTensorLocal(STREAM, t(1, status=READ_WRITE), 40)
        if not target_first:
            source.ask(expose, sync(0))
        target.tell(RegisterTensorLocal(STREAM, 40, TensorId(9)), add(9, 9, 10), read(1, 10))
        if target_first:
            time.sleep(0.1)
            source.tell(expose)
        np.testing.assert_array_equal(values(target.answer().content), np.full(DIMS, 4.0))
        assert "last use is past" in failure(source.ask(read(2, 1)))


def test_a_tensor_that_nobody_exposes_fails_after_a_while(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        content = client.ask(RegisterTensorLocal(STREAM, 41, TensorId(0)), read(0, 0))
        assert "nobody exposed the tensor within 4 s" in failure(content)


def test_a_client_gone_while_its_session_waits_for_a_tensor(server: RunningServer) -> None:
    with undisturbed(server):
        client = Client(server.url)
        client.hello()
        client.tell(upload(1, 1.0), RegisterTensorLocal(STREAM, 42, TensorId(0)), read(0, 0))
        client.hang_up()


def test_what_nobody_took_goes_with_its_session(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as client:
        client.ask(upload(0, 1.0), ExposeTensorLocal(STREAM, t(0, status=READ_WRITE), 43), sync(0))
        assert server.snapshot().exposed_tensors == 1


def remote(port: int, secret: int) -> tuple[tuple[int, ...], TensorRemote, PeerId]:
    capability = tuple([secret, *range(1, 32)])
    address = Address("ws", "127.0.0.1", port)
    return capability, TensorRemote(capability, PeerAddr(WebSocket=address)), PeerId(WebSocket=address)


@pytest.mark.parametrize("target_first", [False, True])
def test_a_tensor_moves_from_server_to_server(server: RunningServer, target_first: bool) -> None:
    capability, where, target_peer = remote(server.port, 5 + target_first)
    with (
        running(Host(jax.devices(), PROGRAMS)) as other,
        undisturbed(server),
        undisturbed(other),
        Client(server.url) as source,
        Client(other.url) as target,
    ):
        expose = ExposeTensorRemote(STREAM, t(1, status=READ_WRITE), 1, capability, target_peer)
        source.tell(upload(0, 1.5), add(0, 0, 1))
        if not target_first:
            source.ask(expose, sync(0))
        target.tell(RegisterTensorRemote(STREAM, where, TensorId(0)), add(0, 0, 1), read(1, 1))
        if target_first:
            time.sleep(0.2)
            source.tell(expose)
        np.testing.assert_array_equal(values(target.answer().content), np.full(DIMS, 6.0))


def test_a_source_that_is_not_there_fails_the_tensor(server: RunningServer) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with undisturbed(server), Client(server.url) as client:
        content = client.ask(RegisterTensorRemote(STREAM, remote(port, 9)[1], TensorId(0)), read(0, 0))
        assert f"ws://127.0.0.1:{port}/data" in failure(content)


def test_a_server_fetches_from_its_peers_only(server: RunningServer) -> None:
    where = TensorRemote(remote(1, 1)[0], PeerAddr(WebSocket=Address("ws", "10.1.2.3", 80)))
    with undisturbed(server), Client(server.url) as client:
        content = client.ask(RegisterTensorRemote(STREAM, where, TensorId(0)), read(0, 0))
        assert "fetches nothing from 10.1.2.3:80; start it with --peer 10.1.2.3:80" in failure(content)


def test_exposed_data_are_given_out_once_and_forgotten_in_time(server: RunningServer) -> None:
    capability, _, peer = remote(server.port, 77)
    key = int.from_bytes(bytes(capability[:8]), "little")
    with undisturbed(server):
        with Client(server.url) as client:
            expose = ExposeTensorRemote(STREAM, t(0), 1, capability, peer)
            client.ask(upload(0, 1.25), expose, sync(0))
        other = WebSocket(f"{server.url}/data")
        other.send(codec.encode(ExternalCommMessage(TensorRequest=key)))
        assert codec.decode(other.receive(), ExternalCommMessage).Tensor == data(1.25)
        other.hang_up()
        with Client(server.url) as client:
            client.ask(upload(0, 1.25), expose, sync(0))
        assert server.snapshot().exposed_tensors == 1  # outlives its session, but not for long


def test_an_undecodable_request_for_data_is_dropped(server: RunningServer) -> None:
    with undisturbed(server):
        other = WebSocket(f"{server.url}/data")
        other.send(b"\xc1")
        assert other.close_code() == 1006


# ---- collectives


def all_reduce(tensor_id: int, out: int) -> RegisterOperation:
    devices = (DeviceId(0, 0), DeviceId(0, 1))
    op = ir.AllReduce(t(tensor_id), t(out, status=NOT_INIT), ReduceOperation.Mean, devices)
    return RegisterOperation(STREAM, operation(op))


def test_sessions_of_one_client_reduce_over_their_devices(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as first, Client(server.url, device=1) as second:
        for step in range(3):
            first.tell(upload(0, 1.0 + step), all_reduce(0, 1), add(1, 1, 2), read(step, 2))
            second.tell(upload(0, 4.0), all_reduce(0, 1), add(1, 1, 2), read(step, 2))
            for client in (first, second):
                np.testing.assert_array_equal(values(client.answer().content), np.full(DIMS, 5.0 + step))


def test_a_device_that_does_not_come_fails_the_others_only(server: RunningServer) -> None:
    with undisturbed(server), Client(server.url) as first:
        second = Client(server.url, device=1)
        second.hello()
        content = first.ask(upload(0, 1.0), all_reduce(0, 1), read(0, 1))
        assert "waited 6 s in vain for devices [1]" in failure(content)
        np.testing.assert_array_equal(values(first.ask(read(1, 0))), np.full(DIMS, 1.0))
        second.hang_up()


def test_a_client_gone_in_the_middle_of_a_collective_leaves_at_once() -> None:
    host = Host(jax.devices(), PROGRAMS, collective_s=600)
    with running(host) as server, undisturbed(server):
        client = Client(server.url)
        client.hello()
        client.tell(upload(0, 1.0), all_reduce(0, 1), read(0, 1))
        client.hang_up()
