"""Calls of programs in a thread of their own: order, failures, and that recording does not wait for them."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import ir
from ir.errors import IrError, ShapeError
from ir.op import Op
from ir.ops.control import DeviceId, ReduceOperation
from jax_backend import host
from jax_backend.executable import Executable
from jax_backend.handles import MemoryLimit
from jax_backend.launcher import MAX_UNDER_WAY
from jax_backend.recorder import Recorder
from jax_backend.rendezvous import Rendezvous
from tests.jax_backend.recorders import DIMS, out, read, t, upload

SIZE_BYTES = 24


def run(recorder: Recorder, *ops: Op) -> None:
    for op in ops:
        recorder.register_operation(op)
    recorder.flush()


def number(recorder: Recorder, id: int) -> float:
    """The number that all elements are."""
    array = read(recorder, id)
    np.testing.assert_array_equal(array, np.full(DIMS, array[0, 0]))
    return float(array[0, 0])


class Gate:
    """Every call of a program waits until it is open; a call of one with a kind of `failing` fails as devices do."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.failing: set[type[Op]] = set()
        self.threads: set[str] = set()

    def pass_through(self, executable: Executable, inputs: Any, pack: Any) -> Any:
        assert self.open.wait(60)
        self.threads.add(threading.current_thread().name)
        if self.failing.intersection(map(type, executable.graph.ops)):
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return executable.compiled(*inputs) if pack is None else executable.compiled(*inputs, pack)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()

    def call(executable: Executable, inputs: Any, pack: Any) -> Any:
        return made.pass_through(executable, inputs, pack)

    monkeypatch.setattr(Executable, "__call__", call)
    yield made
    made.open.set()


@pytest.fixture
def recorder(gate: Gate) -> Iterator[Recorder]:
    made = Recorder(seed=0, launch_ahead=True, name="ahead")
    upload(made, 0, 2.0)
    yield made
    gate.open.set()
    made.close()
    assert len(made.handles) == 0


def test_recording_goes_on_while_calls_wait_for_their_turn(recorder: Recorder, gate: Gate) -> None:
    for n in range(MAX_UNDER_WAY):
        run(recorder, ir.Add(t(n), t(n, ir.READ_WRITE), out(n + 1)))
    assert recorder.stats.programs == MAX_UNDER_WAY
    assert recorder.handles.size_bytes == 0
    assert not gate.threads
    gate.open.set()
    assert number(recorder, MAX_UNDER_WAY) == 2.0 ** (1 + MAX_UNDER_WAY)
    assert all("launcher of ahead" in name for name in gate.threads)


def test_one_call_too_many_waits_for_the_oldest(recorder: Recorder, gate: Gate) -> None:
    for _ in range(MAX_UNDER_WAY):
        run(recorder, ir.Add(t(0), t(0), out(1)))
    more = threading.Thread(target=run, args=(recorder, ir.Add(t(0), t(0), out(1))))
    more.start()
    more.join(0.2)
    assert more.is_alive()
    gate.open.set()
    more.join(60)
    assert not more.is_alive()


def test_a_call_that_fails_takes_along_what_depends_on_it_and_nothing_else(recorder: Recorder, gate: Gate) -> None:
    gate.failing.add(ir.Mul)
    run(recorder, ir.Mul(t(0), t(0), out(1)))
    run(recorder, ir.Add(t(1), t(0), out(2)))
    run(recorder, ir.Sub(t(0), t(0), out(3)))
    gate.open.set()
    assert number(recorder, 3) == 0.0
    for id in (1, 2):
        with pytest.raises(IrError, match="ahead: RESOURCE_EXHAUSTED"):
            number(recorder, id)
    recorder.sync()  # the reads have told it


def test_a_failure_that_nobody_read_is_told_by_one_sync(recorder: Recorder, gate: Gate) -> None:
    gate.failing.add(ir.Mul)
    run(recorder, ir.Mul(t(0), t(0), out(1)))
    run(recorder, ir.Add(t(1), t(0), out(2)))
    recorder.drop(1)
    gate.open.set()
    with pytest.raises(IrError, match="RESOURCE_EXHAUSTED"):
        recorder.sync()
    recorder.sync()
    assert recorder.stats.failures == 1


def test_what_is_recorded_after_a_failure_was_heard_runs_without_it(recorder: Recorder, gate: Gate) -> None:
    gate.failing.add(ir.Mul)
    gate.open.set()
    run(recorder, ir.Mul(t(0), t(0), out(1)))
    with pytest.raises(IrError, match="RESOURCE_EXHAUSTED"):
        number(recorder, 1)
    run(recorder, ir.Add(t(1), t(0), out(2)), ir.Add(t(0), t(0), out(3)))
    assert number(recorder, 3) == 4.0
    with pytest.raises(IrError, match="RESOURCE_EXHAUSTED"):
        number(recorder, 2)


def test_a_result_that_others_need_is_copied_rather_than_donated(recorder: Recorder, gate: Gate) -> None:
    run(recorder, ir.Add(t(0), t(0), out(1)))
    recorder.register_alias(2, 1)
    run(recorder, ir.MulScalar(t(1, ir.READ_WRITE), ir.scalar(3.0), out(3)))
    gate.open.set()
    assert (number(recorder, 2), number(recorder, 3)) == (4.0, 12.0)


def test_a_result_that_is_used_as_another_shape_is_named(recorder: Recorder, gate: Gate) -> None:
    run(recorder, ir.Add(t(0), t(0), out(1)))
    gate.open.set()
    wide = ir.tensor(1, (5,), ir.F32)
    run(recorder, ir.Add(wide, wide, ir.tensor(2, (5,), ir.F32, ir.NOT_INIT)))
    with pytest.raises(ShapeError, match=r"Add: input t1 is declared as float32\[5\], but is float32\[2, 3\]"):
        recorder.read_tensor(ir.tensor(2, (5,), ir.F32)).result()


def test_a_limit_of_memory_counts_what_waits_for_its_turn(gate: Gate) -> None:
    recorder = Recorder(launch_ahead=True, max_bytes=3 * SIZE_BYTES)
    upload(recorder, 0, 2.0)
    gate.open.set()
    for id in (1, 2):
        run(recorder, ir.Add(t(0), t(0), out(id)))
    with pytest.raises(MemoryLimit, match="72 live ones and 24 more"):
        upload(recorder, 3, 1.0)
    recorder.close()


@pytest.mark.parametrize("is_failure", [False, True])
def test_who_looks_for_calls_does_not_wait_for_a_collective(gate: Gate, is_failure: bool) -> None:
    gate.open.set()
    gate.failing.add(ir.Mul)
    rendezvous = Rendezvous(jax.devices()[:2], timeout_s=60.0)
    pair = [Recorder(member=rendezvous.member(n), launch_ahead=True, max_bytes=5 * SIZE_BYTES) for n in (0, 1)]
    reduced = ir.AllReduce(t(0), out(1), ReduceOperation.Sum, (DeviceId(0, 0), DeviceId(0, 1)))
    upload(pair[0], 0, 2.0)
    pair[0].register_operation(reduced)
    began = time.monotonic()
    if is_failure:
        run(pair[0], ir.Mul(t(0), t(0), out(2)))
        with pytest.raises(IrError, match="RESOURCE_EXHAUSTED"):
            number(pair[0], 2)
    else:
        wide = host.from_numpy(np.zeros(100, np.float32), ir.F32)
        with pytest.raises(MemoryLimit):
            pair[0].register_tensor_data_id(2, wide)
    assert time.monotonic() - began < 30
    upload(pair[1], 0, 3.0)
    pair[1].register_operation(reduced)
    assert number(pair[0], 1) == 5.0
    for recorder in pair:
        recorder.close()


def test_a_recorder_works_on_after_it_forgot_everything(recorder: Recorder, gate: Gate) -> None:
    gate.open.set()
    run(recorder, ir.Add(t(0), t(0), out(1)))
    recorder.close()
    upload(recorder, 0, 3.0)
    run(recorder, ir.Add(t(0), t(0), out(1)))
    assert number(recorder, 1) == 6.0
