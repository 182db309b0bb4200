"""All-reduce between the streams of several recorders."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
import pytest

import ir
from ir.ops.control import DeviceId, ReduceOperation
from ir.tensor import READ_ONLY, READ_WRITE, TensorStatus
from ir.verify import Level
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.collective import launch
from jax_backend.recorder import Recorder
from jax_backend.rendezvous import CollectiveFailure, Rendezvous
from tests.jax_backend.recorders import DIMS, read, t
from tests.jax_backend.recorders import out as new

N = 4


def all_reduce(
    source: int,
    out: int,
    group: Sequence[int] = (0, 1),
    how: str = "Sum",
    status: TensorStatus = READ_ONLY,
    dims: tuple[int, ...] = DIMS,
) -> ir.AllReduce:
    devices = tuple(DeviceId(0, n) for n in group)
    return ir.AllReduce(t(source, status, dims), new(out, dims), ReduceOperation(how), devices)


def part(device: int, step: int = 0) -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(DIMS) * (device + 1) + 7 * step


def upload(recorder: Recorder, id: int, array: np.ndarray) -> None:
    recorder.register_tensor_data_id(id, host.from_numpy(array, ir.F32))


Make = Callable[..., list[Recorder]]


@pytest.fixture
def make() -> Iterator[Make]:
    """Recorders that meet, one per device, each with its part as tensor 0."""
    made: list[Recorder] = []

    def recorders(count: int = 2, timeout_s: float = 10.0, **options: object) -> list[Recorder]:
        rendezvous = Rendezvous(jax.devices()[:count], timeout_s=timeout_s)
        cache = ProgramCache()
        for position in range(count):
            made.append(Recorder(member=rendezvous.member(position), cache=cache, **options))  # type: ignore[arg-type]
            upload(made[-1], 0, part(position))
        return made[-count:]

    yield recorders
    for recorder in made:
        recorder.close()


def in_threads(*jobs: Callable[[], None]) -> None:
    """Run each job in a thread of its own; the first failure is raised here."""
    failures: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as reason:
            failures.append(reason)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a participant hangs"
    if failures:
        raise failures[0]


# ---- results


@pytest.mark.parametrize("how", ["Sum", "Mean"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_each_device_gets_the_same_bits_on_itself(make: Make, count: int, how: str) -> None:
    recorders = make(count)
    for recorder in recorders:
        recorder.register_operation(all_reduce(0, 1, range(count), how))
        recorder.register_operation(ir.SyncCollective())
    total = sum(part(n) for n in range(count)) / (count if how == "Mean" else 1)
    bits = {read(recorder, 1).tobytes() for recorder in recorders}
    assert bits == {np.asarray(total, np.float32).tobytes()}
    for recorder in recorders:
        assert recorder.handles.array(1).devices() == {recorder.device}
        np.testing.assert_array_equal(read(recorder, 0), part(recorders.index(recorder)))


def test_recording_waits_for_nobody_and_the_last_one_starts_it(make: Make) -> None:
    first, second = make()
    first.register_operation(all_reduce(0, 1))
    first.register_operation(ir.SyncCollective())
    assert read(first, 0)[1, 2] == 5.0  # another tensor is read meanwhile
    first.register_operation(ir.Mul(t(1), t(1), new(2)))
    second.register_operation(ir.MulScalar(t(0, READ_WRITE), ir.scalar(10.0), new(1)))
    second.register_operation(all_reduce(1, 2))
    want = part(0) + 10 * part(1)
    np.testing.assert_array_equal(read(first, 2), want * want)
    np.testing.assert_array_equal(read(second, 2), want)


def test_several_under_way_and_several_groups_at_once(make: Make) -> None:
    recorders = make(N)
    for position, recorder in enumerate(recorders):
        pair = (0, 1) if position < 2 else (2, 3)
        recorder.register_operation(all_reduce(0, 1, pair))
        recorder.register_operation(all_reduce(0, 2, (3, 1, 0, 2)))  # a set: its order means nothing
        recorder.register_operation(all_reduce(0, 3, pair, "Mean"))
    for position, recorder in enumerate(recorders):
        pair = (0, 1) if position < 2 else (2, 3)
        np.testing.assert_array_equal(read(recorder, 3), (part(pair[0]) + part(pair[1])) / 2)
        np.testing.assert_array_equal(read(recorder, 1), part(pair[0]) + part(pair[1]))
        np.testing.assert_array_equal(read(recorder, 2), sum(part(n) for n in range(N)))


def test_calls_meet_by_their_order_alone(make: Make) -> None:
    first, second = make()
    first.register_operation(all_reduce(0, 5))
    second.register_operation(ir.AddScalar(t(0), ir.scalar(100.0), new(9)))
    second.register_operation(all_reduce(9, 8))
    second.register_operation(all_reduce(0, 7))
    first.register_operation(all_reduce(5, 6))
    np.testing.assert_array_equal(read(second, 8), part(0) + part(1) + 100)
    np.testing.assert_array_equal(read(second, 7), part(0) + part(1) + 100 + part(1))
    np.testing.assert_array_equal(read(first, 6), read(second, 7))


def test_an_id_may_be_used_again(make: Make) -> None:
    recorders = make()
    want = [part(0), part(1)]
    for _ in range(5):
        for recorder in recorders:
            recorder.register_operation(all_reduce(0, 1, how="Mean", status=READ_WRITE))
        for recorder in recorders:
            recorder.register_operation(ir.MulScalar(t(1, READ_WRITE), ir.scalar(2.0), new(0)))
        want = [want[0] + want[1]] * 2
    for recorder in recorders:
        np.testing.assert_array_equal(read(recorder, 0), want[0])
        assert len(recorder.handles) == 1


def test_a_loop_of_100_steps_compiles_nothing_after_the_first(make: Make) -> None:
    recorders = make()
    cache = recorders[0].cache
    want = part(0).astype(np.float64), part(1).astype(np.float64)

    def train(recorder: Recorder) -> None:
        for step in range(100):
            recorder.register_operation(all_reduce(0, 1, how="Mean"))
            recorder.register_operation(ir.SyncCollective())
            recorder.register_operation(ir.MulScalar(t(1, READ_WRITE), ir.scalar(1 / (step + 1)), new(2)))
            recorder.register_operation(ir.Add(t(0, READ_WRITE), t(2, READ_WRITE), new(3)))
            recorder.register_operation(ir.MulScalar(t(3, READ_WRITE), ir.scalar(0.5), new(0)))
        recorder.sync()

    in_threads(*(lambda r=r: train(r) for r in recorders))
    for step in range(100):
        mean = (want[0] + want[1]) / 2 / (step + 1)
        want = (want[0] + mean) / 2, (want[1] + mean) / 2
    for recorder, value in zip(recorders, want, strict=True):
        np.testing.assert_allclose(read(recorder, 0), value, rtol=1e-4)
        assert len(recorder.handles) == 1
    assert cache.stats.compiles == 2  # the program between two collectives, once per device


def gradients_step(recorders: list[Recorder], first: int, num: int) -> None:
    """Every recorder brings `num` arrays of different lengths, in place."""
    for position, recorder in enumerate(recorders):
        for n in range(num):
            upload(recorder, first + n, np.full(n + 1, 10.0 * n + position, np.float32))
    for recorder in recorders:
        for n in range(num):
            recorder.register_operation(all_reduce(first + n, first + 100 + n, status=READ_WRITE, dims=(n + 1,)))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many collectives each program that was started has."""
    sizes: list[int] = []

    def counted(compiled: jax.stages.Compiled, arguments: Sequence[jax.Array]) -> object:
        sizes.append(len(arguments))
        return launch(compiled, arguments)

    monkeypatch.setattr("jax_backend.rendezvous.launch", counted)
    return sizes


def test_what_is_complete_together_goes_in_one_program_once_it_has_come_twice(make: Make, launches: list[int]) -> None:
    recorders = make()
    for step, expected in enumerate([[1] * 5, [5], [5]]):
        first = 1000 * (step + 1)
        gradients_step(recorders, first, 5)
        for recorder in recorders:
            for n in range(5):
                got = read(recorder, first + 100 + n, dims=(n + 1,))
                np.testing.assert_array_equal(got, np.full(n + 1, 20.0 * n + 1, np.float32))
        assert launches == expected
        launches.clear()


def test_what_nobody_asks_for_starts_when_there_is_enough_of_it(
    make: Make, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jax_backend.rendezvous.MAX_JOINT", 3)
    recorders = make()
    gradients_step(recorders, 1000, 2)
    assert launches == []
    gradients_step(recorders, 2000, 5)
    assert launches == [1] * 6


def test_threads_that_meet_in_different_groups_in_any_order(make: Make) -> None:
    recorders = make(N)
    groups = [(0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3)]

    def work(position: int) -> None:
        recorder = recorders[position]
        for step in range(20):
            for number, group in enumerate(groups):
                if position in group:
                    recorder.register_operation(all_reduce(0, 100 + number, group))
            if step % (position + 2) == 0:
                time.sleep(0.001)
        for number, group in enumerate(groups):
            if position in group:
                np.testing.assert_array_equal(read(recorder, 100 + number), sum(part(n) for n in group))

    in_threads(*(lambda p=p: work(p) for p in range(N)))


def test_a_collective_inside_a_registered_graph(make: Make) -> None:
    graph = [
        ir.MulScalar(t(0, READ_WRITE, (0, 1)), ir.ScalarIr(UInt=0), new(1, (0, 1))),
        all_reduce(1, 2, status=READ_WRITE, dims=(0, 1)),
        ir.SyncCollective(),
        ir.Add(t(2, READ_ONLY, (0, 1)), t(2, READ_WRITE, (0, 1)), new(3, (0, 1))),
    ]
    recorders = make(verify=Level.cheap)
    want = [part(0), part(1)]

    def work(recorder: Recorder) -> None:
        recorder.register_graph(4, graph)
        for step in range(3):
            pairs = tuple((ir.TensorId(a), ir.TensorId(b)) for a, b in ((0, step), (3, step + 1)))
            recorder.execute_graph(4, ir.GraphBindings(pairs, DIMS, (ir.ScalarIr(Float=0.5),), ()))
        recorder.flush()

    in_threads(*(lambda r=r: work(r) for r in recorders))
    for _ in range(3):
        want = [want[0] + want[1]] * 2
    for recorder in recorders:
        np.testing.assert_array_equal(read(recorder, 3), want[0])
        assert recorder.handles.ids() == [3]


def test_one_participant_is_the_tensor_itself(make: Make) -> None:
    first, _ = make()
    first.register_operation(all_reduce(0, 1, (0,), "Mean"))
    np.testing.assert_array_equal(read(first, 1), part(0))
    assert first.handles.array(1) is first.handles.array(0)


@pytest.mark.parametrize("dims", [(), (0, 3), (1,)], ids=str)
def test_shapes_without_an_axis_or_without_elements(make: Make, dims: tuple[int, ...]) -> None:
    recorders = make()
    for recorder in recorders:
        upload(recorder, 5, np.full(dims, 3.0, np.float32))
        recorder.register_operation(all_reduce(5, 6, dims=dims))
    for recorder in recorders:
        got = read(recorder, 6, dims=dims)
        assert got.shape == dims
        assert (got == 6).all()


def test_a_last_use_gives_its_buffer_unless_somebody_else_has_it(make: Make) -> None:
    recorders = make()
    arrays = [recorder.handles.array(0) for recorder in recorders]
    for recorder in recorders:
        recorder.register_operation(ir.MulScalar(t(0), ir.scalar(1.0), new(1)))
        recorder.flush()
    made = [recorder.handles.array(1) for recorder in recorders]
    for recorder in recorders:
        recorder.register_operation(all_reduce(1, 2, status=READ_WRITE))
        recorder.register_alias(8, 0)
        recorder.register_operation(all_reduce(8, 3, status=READ_WRITE))
    for recorder in recorders:
        np.testing.assert_array_equal(read(recorder, 2), read(recorder, 3))
        assert sorted(recorder.handles.ids()) == [0, 2, 3]
    assert all(array.is_deleted() for array in made)
    assert not any(array.is_deleted() for array in arrays)


# ---- faults


def failure(recorder: Recorder, id: int = 1) -> str:
    """Why tensor `id` cannot be read; what does not depend on it still can."""
    with pytest.raises(CollectiveFailure) as caught:
        read(recorder, id)
    np.testing.assert_array_equal(read(recorder, 0), part(recorder.device.id))
    return str(caught.value)


def test_a_missing_participant_is_named_in_every_waiting_one(make: Make) -> None:
    recorders = make(3, timeout_s=0.3)
    messages: list[str] = []
    for recorder in recorders[:2]:
        recorder.register_operation(all_reduce(0, 1, range(3)))
        recorder.register_operation(ir.Mul(t(1), t(1), new(2)))
    began = time.monotonic()
    in_threads(*(lambda r=r: messages.append(failure(r, 2)) for r in recorders[:2]))
    assert 0.3 <= time.monotonic() - began < 5
    assert len(messages) == 2
    for message in messages:
        assert "AllReduce over devices [0, 1, 2], call 0: waited 0.3 s in vain for devices [2]; " in message
        assert "device 0 brought Sum of float32[2, 3], device 1 brought Sum" in message
    late = recorders[2]
    late.register_operation(all_reduce(0, 1, range(3)))
    assert "in vain for devices [2]" in failure(late)
    for recorder in recorders:  # the next call meets again
        recorder.register_operation(all_reduce(0, 3, range(3)))
    for recorder in recorders:
        np.testing.assert_array_equal(read(recorder, 3), part(0) + part(1) + part(2))


def test_parts_that_differ_fail_everybody_at_once(make: Make) -> None:
    recorders = make(3)
    recorders[0].register_operation(all_reduce(0, 1, range(3)))
    recorders[1].register_operation(all_reduce(0, 1, range(3), "Mean"))
    want = "device 0 brought Sum of float32[2, 3], device 1 brought Mean of float32[2, 3]; expected equal parts"
    assert want in failure(recorders[0])
    assert want in failure(recorders[1])
    recorders[2].register_operation(all_reduce(0, 1, range(3)))
    assert want in failure(recorders[2])


def test_shapes_that_differ_are_told(make: Make) -> None:
    first, second = make()
    upload(second, 9, np.zeros((3, 2), np.float32))
    first.register_operation(all_reduce(0, 1))
    second.register_operation(all_reduce(9, 1, dims=(3, 2)))
    with pytest.raises(CollectiveFailure, match="expected equal parts"):
        first.sync()
    assert "device 0 brought Sum of float32[2, 3], device 1 brought Sum of float32[3, 2]" in failure(first)
    assert "expected equal parts" in failure(second)


def test_a_tensor_that_failed_before_fails_the_others_too(make: Make) -> None:
    first, second = make()
    first.register_operation(all_reduce(0, 1))
    second.register_operation(all_reduce(77, 1))
    assert "device 1 has no tensor to bring: no tensor has the id 77" in failure(first)
    with pytest.raises(ir.UnknownHandle, match="no tensor has the id 77"):
        read(second, 1)


def test_a_session_that_ends_fails_those_that_wait_for_it(make: Make) -> None:
    first, second = make()
    for recorder in (first, second):
        recorder.register_operation(all_reduce(0, 1))
    first.register_operation(all_reduce(0, 2))
    second.close()
    assert "call 1: device 1 left: its session is over" in failure(first, 2)
    np.testing.assert_array_equal(read(first, 1), part(0) + part(1))


def test_who_gives_up_stops_waiting_and_leaves_its_part() -> None:
    rendezvous = Rendezvous(jax.devices()[:2], timeout_s=10.0)
    members = [rendezvous.member(position) for position in range(2)]
    first, second = (Recorder(member=member) for member in members)
    for position, recorder in enumerate((first, second)):
        upload(recorder, 0, part(position))
    first.register_operation(all_reduce(0, 1))
    threading.Timer(0.2, members[0].give_up, ("the client is gone",)).start()
    assert "the client is gone" in failure(first)
    second.register_operation(all_reduce(0, 1))
    np.testing.assert_array_equal(read(second, 1), part(0) + part(1))


def test_a_session_that_joins_late_is_told_that_the_others_are_further() -> None:
    rendezvous = Rendezvous(jax.devices()[:2], timeout_s=10.0)
    first, second = (Recorder(member=rendezvous.member(position)) for position in range(2))
    for position, recorder in enumerate((first, second)):
        upload(recorder, 0, part(position))
        recorder.register_operation(all_reduce(0, 1))
    second.close()
    again = Recorder(member=rendezvous.member(1))
    upload(again, 0, part(1))
    again.register_operation(all_reduce(0, 1))
    assert "call 0: device 0 is at its call 1 already" in failure(again)


def test_two_sessions_on_one_device_cannot_be_told_apart() -> None:
    rendezvous = Rendezvous(jax.devices()[:2], timeout_s=10.0)
    recorders = [Recorder(member=rendezvous.member(0, client)) for client in ("a", "a", "b")]
    for recorder in recorders:
        upload(recorder, 0, part(0))
        recorder.register_operation(all_reduce(0, 1))
    with pytest.raises(ir.StreamError, match="device 0 takes part through another session of this client already"):
        read(recorders[1], 1)
    partner = Recorder(member=rendezvous.member(1, "b"))
    upload(partner, 0, part(1))
    partner.register_operation(all_reduce(0, 1))
    np.testing.assert_array_equal(read(recorders[2], 1), part(0) + part(1))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ((1, 2), r"expected device 0 itself among them, got \[1, 2\]"),
        ((0, 1, 1), "expected one or more distinct devices"),
        ((), "expected one or more distinct devices"),
        ((0, 3), r"expected positions below 3, got \[0, 3\]"),
    ],
    ids=["not itself", "twice", "none", "too many"],
)
def test_a_set_that_makes_no_sense(make: Make, group: tuple[int, ...], message: str) -> None:
    first, *_ = make(3)
    first.register_operation(all_reduce(0, 1, group))
    with pytest.raises(ir.StreamError, match=message):
        read(first, 1)
    np.testing.assert_array_equal(read(first, 0), part(0))


def test_a_recorder_alone_says_what_to_do() -> None:
    recorder = Recorder()
    upload(recorder, 0, part(0))
    recorder.register_operation(all_reduce(0, 1))
    with pytest.raises(ir.StreamError, match=r"Recorder\(member=rendezvous.member\(position\)\)"):
        read(recorder, 1)
    with pytest.raises(ir.StreamError, match="expected a position below 2, got 2"):
        Rendezvous(jax.devices()[:2]).member(2)


def test_what_fails_in_one_group_leaves_the_other_alone(make: Make) -> None:
    recorders = make(N, timeout_s=0.3)
    recorders[0].register_operation(all_reduce(0, 1, (0, 1)))
    for recorder in recorders[2:]:
        recorder.register_operation(all_reduce(0, 1, (2, 3)))
    assert "in vain for devices [1]" in failure(recorders[0])
    for recorder in recorders[2:]:
        np.testing.assert_array_equal(read(recorder, 1), part(2) + part(3))
