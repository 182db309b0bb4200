"""What a session promises: order, survivors, failures, donation, few compilations."""

import threading
from collections.abc import Iterator, Sequence

import chex
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ir
from ir.op import Op
from ir.segment import Limits, Rule
from ir.tensor import READ_ONLY, READ_WRITE
from jax_backend import executable
from jax_backend.cache import ProgramCache
from jax_backend.recorder import Recorder
from jax_backend.runner import Call
from tests.jax_backend.recorders import DIMS, out, read, t, upload


@pytest.fixture(params=[False, True], ids=["", "launch_ahead"])
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    made = Recorder(seed=0, launch_ahead=request.param)
    yield made
    made.close()
    assert len(made.handles) == 0


def step(recorder: Recorder, weight: int, base: int, rate: float) -> int:
    """One SGD-like update of `weight`, which it consumes; returns the id of the new weight."""
    recorder.register_operation(ir.MulScalar(t(weight), ir.scalar(rate), out(base)))
    recorder.register_operation(ir.Sub(t(weight, READ_WRITE), t(base, READ_WRITE), out(base + 1)))
    return base + 1


# ---- programs and compilations


def test_a_scalar_that_changes_each_step_compiles_once(recorder: Recorder) -> None:
    upload(recorder, 0, 1.0)
    weight, expected = 0, np.ones(DIMS, np.float32)
    for n in range(8):
        weight = step(recorder, weight, 100 + 2 * n, 1 / (n + 2))
        expected = expected - expected * np.float32(1 / (n + 2))
        np.testing.assert_allclose(read(recorder, weight), expected, rtol=1e-6)
    assert recorder.cache.stats.compiles == 1
    assert recorder.cache.stats.hits == 7


def test_a_replayed_program_is_traced_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    chex.clear_trace_counter()
    make = executable.program_function
    monkeypatch.setattr(executable, "program_function", lambda *given: chex.assert_max_traces(make(*given), n=1))
    upload(recorder, 0, 1.0)
    weight = 0
    for n in range(5):
        weight = step(recorder, weight, 100 + 2 * n, 0.5)
        read(recorder, weight)
    assert recorder.stats.programs == 5


def test_slice_starts_that_move_compile_twice_and_never_again(recorder: Recorder) -> None:
    data = np.arange(20, dtype=np.float32)
    upload(recorder, 0, data, (20,))
    for n, start in enumerate((0, 4, 9, 13, 17)):
        ranges = (ir.SliceRange(start, start + 3, 1),)
        recorder.register_operation(ir.Slice(t(0, dims=(20,)), ranges, out(10 + n, (3,))))
        np.testing.assert_array_equal(read(recorder, 10 + n, dims=(3,)), data[start : start + 3])
    assert recorder.cache.stats.compiles == 2
    assert "slice starts moved" in recorder.cache.stats.reasons[-1]


def test_slice_assign_with_moving_starts_writes_where_it_says(recorder: Recorder) -> None:
    upload(recorder, 0, 0.0, (7,))
    upload(recorder, 1, 5.0, (2,))
    for n, start in enumerate((0, 5, 2)):
        op = ir.SliceAssign(t(0, dims=(7,)), (ir.SliceRange(start, start + 2, 1),), t(1, dims=(2,)), out(10 + n, (7,)))
        recorder.register_operation(op)
        expected = np.zeros(7, np.float32)
        expected[start : start + 2] = 5.0
        np.testing.assert_array_equal(read(recorder, 10 + n, dims=(7,)), expected)


def test_the_place_of_drops_does_not_matter(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    for n, place in enumerate((1, 2, 3)):
        base = 100 + 10 * n
        ops: list[Op] = [
            ir.MulScalar(t(0), ir.scalar(3.0), out(base)),
            ir.Add(t(base), t(0), out(base + 1)),
            ir.Add(t(base + 1), t(0), out(base + 2)),
            ir.Add(t(base + 2), t(0), out(base + 3)),
        ]
        ops.insert(place + 1, ir.Drop(t(base)))
        for op in ops:
            recorder.register_operation(op)
        np.testing.assert_array_equal(read(recorder, base + 3), np.full(DIMS, 12.0))
        for id in (base + 1, base + 2, base + 3):
            recorder.drop(id)
    assert recorder.cache.stats.compiles <= 2


def test_survivors_that_vary_are_served_by_a_superset(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    for n, keep in enumerate((False, True, False, True, False)):
        base = 100 + 10 * n
        status = READ_ONLY if keep else READ_WRITE
        recorder.register_operation(ir.MulScalar(t(0), ir.scalar(3.0), out(base)))
        recorder.register_operation(ir.Add(t(base, status), t(0), out(base + 1)))
        np.testing.assert_array_equal(read(recorder, base + 1), np.full(DIMS, 8.0))
        assert (base in recorder.handles) == keep
    assert recorder.cache.stats.compiles == 2


def test_a_loop_that_never_reads_makes_few_programs() -> None:
    recorder = Recorder(limits=Limits(min_ops=32, max_ops=128, hold=512))
    upload(recorder, 0, 1.0)
    weight = 0
    for n in range(400):
        weight = step(recorder, weight, 10 + 2 * n, 1e-3)
    np.testing.assert_allclose(read(recorder, weight), np.full(DIMS, (1 - 1e-3) ** 400), rtol=1e-4)
    assert recorder.cache.stats.compiles <= 4
    assert len(recorder.handles) == 1


def test_a_recompile_names_the_field_that_differs(recorder: Recorder) -> None:
    for n, rows in enumerate((2, 5)):
        upload(recorder, n, 1.0, (rows, 3))
        op = ir.MulScalar(t(n, dims=(rows, 3)), ir.scalar(2.0), out(50 + n, (rows, 3)))
        recorder.register_operation(op)
        recorder.flush()
    assert "MulScalar.lhs: f32[2,3] before, f32[5,3] now" in recorder.cache.stats.reasons[-1]
    assert recorder.cache.stats.reasons[-1].startswith("stream: compiled 1 ops")


def test_concurrent_sessions_compile_a_program_once() -> None:
    cache = ProgramCache()
    barrier = threading.Barrier(4)
    results: list[np.ndarray] = []

    def session() -> None:
        recorder = Recorder(cache=cache)
        upload(recorder, 0, 1.0)
        barrier.wait()
        weight = step(recorder, 0, 100, 0.25)
        results.append(read(recorder, weight))

    threads = [threading.Thread(target=session) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.stats.compiles == 1
    np.testing.assert_array_equal(np.stack(results), np.full((4, *DIMS), 0.75))


def test_the_cache_evicts_the_least_recently_used_program() -> None:
    recorder = Recorder(cache=ProgramCache(max_programs=2))
    for rows in (2, 3, 2, 4, 2):
        upload(recorder, rows, 1.0, (rows, 3))
        op = ir.MulScalar(t(rows, dims=(rows, 3)), ir.scalar(2.0), out(50, (rows, 3)))
        recorder.register_operation(op)
        recorder.flush()
    assert len(recorder.cache) == 2
    assert (recorder.cache.stats.compiles, recorder.cache.stats.evictions) == (3, 1)


def test_a_failed_compilation_leaves_no_entry(recorder: Recorder) -> None:
    recorder.register_operation(ir.Custom("nobody::knows", (), (out(1),), ()))
    with pytest.raises(ir.IrError, match="nobody::knows"):
        read(recorder, 1)
    assert len(recorder.cache) == 0


# ---- handles


def test_a_read_write_use_ends_the_id(recorder: Recorder) -> None:
    upload(recorder, 0, 1.0)
    weight = step(recorder, 0, 100, 0.5)
    read(recorder, weight, READ_WRITE)
    assert recorder.handles.ids() == []


def test_a_consumed_weight_gives_its_buffer_to_the_next(recorder: Recorder) -> None:
    upload(recorder, 0, 1.0)
    weight = step(recorder, 0, 100, 0.5)
    recorder.flush()
    before = recorder.handles.array(weight)
    after = step(recorder, weight, 102, 0.5)
    recorder.sync()
    assert before.is_deleted()
    np.testing.assert_array_equal(read(recorder, after), np.full(DIMS, 0.25))


def test_an_aliased_buffer_is_copied_rather_than_donated(recorder: Recorder) -> None:
    upload(recorder, 0, 1.0)
    weight = step(recorder, 0, 100, 0.5)
    recorder.flush()
    recorder.register_alias(7, weight)
    after = step(recorder, weight, 102, 0.5)
    np.testing.assert_array_equal(read(recorder, after), np.full(DIMS, 0.25))
    np.testing.assert_array_equal(read(recorder, 7), np.full(DIMS, 0.5))


def test_an_alias_of_a_pending_tensor_is_freed_on_its_own(recorder: Recorder) -> None:
    upload(recorder, 0, 3.0)
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    recorder.register_alias(2, 1)
    recorder.drop(1)
    np.testing.assert_array_equal(read(recorder, 2), np.full(DIMS, 6.0))


def test_an_upload_under_the_id_of_a_pending_result_replaces_it(recorder: Recorder) -> None:
    upload(recorder, 0, 3.0)
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    upload(recorder, 2, 1.0)
    upload(recorder, 1, 9.0)
    recorder.register_operation(ir.Add(t(1), t(2), out(3)))
    np.testing.assert_array_equal(read(recorder, 3), np.full(DIMS, 10.0))


def test_an_alias_of_nothing_is_refused(recorder: Recorder) -> None:
    with pytest.raises(ir.UnknownHandle, match="no tensor has the id 5"):
        recorder.register_alias(6, 5)


def test_a_double_drop_is_no_error(recorder: Recorder) -> None:
    upload(recorder, 0, 1.0)
    recorder.drop(0)
    recorder.drop(0)
    recorder.sync()


# ---- failures


def test_a_failure_spares_everything_that_does_not_depend_on_it(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    recorder.register_operation(ir.Add(t(0), t(99), out(1)))
    recorder.register_operation(ir.Add(t(1), t(0), out(2)))
    recorder.register_operation(ir.Add(t(0), t(0), out(3)))
    with pytest.raises(ir.UnknownHandle, match="input t99 was never made"):
        read(recorder, 2)
    np.testing.assert_array_equal(read(recorder, 3), np.full(DIMS, 4.0))


def test_an_operation_that_does_not_trace_is_named_with_its_place(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    recorder.register_operation(ir.Reshape(t(1), out(2, (4, 4))))
    recorder.register_operation(ir.Add(t(1), t(0), out(3)))
    with pytest.raises(ir.IrError, match=r"op 2 of 3: Reshape"):
        read(recorder, 2, dims=(4, 4))
    np.testing.assert_array_equal(read(recorder, 3), np.full(DIMS, 6.0))


def test_an_input_that_is_not_what_it_declares_is_named(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0, (5,))
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    with pytest.raises(ir.ShapeError, match=r"input t0 is declared as float32\[2, 3\], but is float32\[5\]"):
        read(recorder, 1)


def test_a_failed_id_that_is_written_again_is_good_again(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    recorder.register_operation(ir.Add(t(99), t(0), out(1)))
    recorder.flush()
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    np.testing.assert_array_equal(read(recorder, 1), np.full(DIMS, 4.0))


def test_each_failure_is_reported_by_one_sync(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    recorder.register_operation(ir.Add(t(99), t(0), out(1)))
    with pytest.raises(ir.UnknownHandle):
        recorder.sync()
    recorder.sync()


def test_a_consumed_input_of_a_failed_operation_is_gone(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    recorder.register_operation(ir.Add(t(0, READ_WRITE), t(99), out(1)))
    recorder.flush()
    assert 0 not in recorder.handles


def test_a_read_of_nothing_says_so(recorder: Recorder) -> None:
    with pytest.raises(ir.UnknownHandle, match="no tensor has the id 5"):
        read(recorder, 5)


# ---- random numbers


def draws(recorder: Recorder, count: int, base: int) -> list[np.ndarray]:
    for n in range(count):
        recorder.register_operation(ir.Random(out(base + n), ir.DefaultDistribution.Default))
    return [read(recorder, base + n) for n in range(count)]


def test_the_same_seed_draws_the_same_numbers_wherever_the_stream_is_cut() -> None:
    one, other = Recorder(seed=7), Recorder(seed=7)
    together = draws(one, 4, 0)
    apart = [draws(other, 1, n)[0] for n in range(4)]
    np.testing.assert_array_equal(together, apart)
    assert len({a.tobytes() for a in together}) == 4
    one.seed(7)
    np.testing.assert_array_equal(draws(one, 4, 10), together)


def test_eager_draws_what_compiled_draws() -> None:
    np.testing.assert_array_equal(draws(Recorder(seed=3), 3, 0), draws(Recorder(seed=3, eager=True), 3, 0))


# ---- registered graphs


def test_a_known_graph_with_new_bindings_compiles_nothing(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    rows, cols = 3, 4  # placeholders of the sizes 2 and 3
    relative = [
        ir.MulScalar(t(0, READ_ONLY, (rows, cols)), ir.ScalarIr(UInt=0), out(1, (rows, cols))),
        ir.Add(t(1, READ_WRITE, (rows, cols)), t(0, READ_WRITE, (rows, cols)), out(2, (rows, cols))),
    ]
    recorder.register_graph(5, relative)
    current, value = 0, 2.0
    for n in range(4):
        pairs = ((ir.TensorId(0), ir.TensorId(current)), (ir.TensorId(2), ir.TensorId(50 + n)))
        bindings = ir.GraphBindings(pairs, (9, 9, 9, 2, 3), (ir.scalar(float(n)),), ())
        recorder.execute_graph(5, bindings)
        current, value = 50 + n, value * (n + 1)
        np.testing.assert_array_equal(read(recorder, current), np.full(DIMS, value))
    assert recorder.cache.stats.compiles == 1
    assert recorder.handles.ids() == [current]


def test_an_unknown_graph_fails_its_outputs_only(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    pairs = ((ir.TensorId(0), ir.TensorId(0)), (ir.TensorId(1), ir.TensorId(8)))
    recorder.execute_graph(77, ir.GraphBindings(pairs, (), (), ()))
    with pytest.raises(ir.StreamError, match="no graph is registered under 77"):
        read(recorder, 8)
    np.testing.assert_array_equal(read(recorder, 0), np.full(DIMS, 2.0))


def test_a_graph_in_which_one_operation_fails_keeps_the_rest(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    relative = [
        ir.Reshape(t(0), out(1, (4, 4))),
        ir.Add(t(0), t(0), out(2)),
    ]
    recorder.register_graph(1, relative)
    pairs = tuple((ir.TensorId(a), ir.TensorId(b)) for a, b in ((0, 0), (1, 8), (2, 9)))
    recorder.execute_graph(1, ir.GraphBindings(pairs, (), (), ()))
    with pytest.raises(ir.IrError, match="Reshape"):
        read(recorder, 8, dims=(4, 4))
    np.testing.assert_array_equal(read(recorder, 9), np.full(DIMS, 4.0))


# ---- devices


def test_a_tensor_moves_to_another_device_without_the_host(recorder: Recorder) -> None:
    other = Recorder(jax.devices()[1])
    upload(recorder, 0, 2.0)
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    other.register_handle(4, recorder.take_handle(t(1, READ_WRITE)))
    other.register_operation(ir.Add(t(4), t(4), out(5)))
    np.testing.assert_array_equal(read(other, 5), np.full(DIMS, 8.0))
    assert other.handles.array(5).devices() == {jax.devices()[1]}
    assert 1 not in recorder.handles


def test_profiling_measures_the_work_between_its_ends(recorder: Recorder) -> None:
    upload(recorder, 0, 2.0)
    token = recorder.profile_start()
    recorder.register_operation(ir.Add(t(0), t(0), out(1)))
    assert 0 < recorder.profile_end(token) < 60
    assert 1 in recorder.handles


# ---- random streams


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[str, int, int, float]]:
    """Steps on up to six tensors: an operation on two of them, a drop, or a read."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["add", "mul", "scale", "consume", "drop", "read", "alias"]),
                st.integers(0, 5),
                st.integers(0, 5),
                st.floats(-2, 2, allow_nan=False, width=32),
            ),
            max_size=25,
        )
    )


CACHES = {True: ProgramCache(), False: ProgramCache()}


def play(plan: list[tuple[str, int, int, float]], *, eager: bool) -> tuple[list[np.ndarray], int]:
    recorder = Recorder(cache=CACHES[eager], eager=eager, limits=Limits(min_ops=4, max_ops=8, hold=16))
    for id in range(3):
        upload(recorder, id, 0.5 + id)
    alive, fresh, seen = [0, 1, 2], iter(range(10, 1000)), list[np.ndarray]()
    for what, a, b, by in plan:
        if not alive:
            break
        lhs, rhs = alive[a % len(alive)], alive[b % len(alive)]
        if what == "drop":
            recorder.register_operation(ir.Drop(t(lhs)))
            alive.remove(lhs)
        elif what == "read":
            seen.append(read(recorder, lhs))
        elif what == "alias":
            recorder.register_alias(new := next(fresh), lhs)
            alive.append(new)
        else:
            new = next(fresh)
            last = READ_WRITE if what == "consume" else READ_ONLY
            if what == "scale":
                recorder.register_operation(ir.MulScalar(t(lhs), ir.scalar(by), out(new)))
            else:
                kind = ir.Mul if what == "mul" else ir.Sub
                recorder.register_operation(kind(t(rhs), t(lhs, last), out(new)))
            if what == "consume":
                alive.remove(lhs)
            alive.append(new)
    seen += [read(recorder, id, READ_WRITE) for id in alive]
    return seen, len(recorder.handles)


@settings(max_examples=60)
@given(streams())
def test_a_random_stream_gives_the_same_numbers_recorded_and_eager_and_leaks_nothing(
    plan: list[tuple[str, int, int, float]],
) -> None:
    recorded, left = play(plan, eager=False)
    eager, eager_left = play(plan, eager=True)
    assert len(recorded) == len(eager)
    for ours, theirs in zip(recorded, eager, strict=True):  # a fused multiply-add may keep one rounding less
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * (1 + float(np.abs(theirs).max())))
    assert (left, eager_left) == (0, 0)


def test_who_watches_sees_each_program_with_its_inputs_and_why_it_ends() -> None:
    seen: list[tuple[str, tuple[int, ...], Rule]] = []

    def watch(call: Call) -> Sequence[jax.Array]:
        (op,) = call.executable.graph.ops
        seen.append((op.kind, call.inputs[0].shape, call.rule))
        return call.make()

    recorder = Recorder(watch=watch)
    for _ in range(2):
        x = recorder.from_numpy(np.ones((2, 3), np.float32))
        np.testing.assert_allclose(x.exp().numpy(), np.e, rtol=1e-6)
    assert seen == [("Exp", (2, 3), Rule.END), ("Exp", (2, 3), Rule.KNOWN)]


def test_a_program_says_why_it_was_compiled_and_names_its_instructions_by_operation() -> None:
    recorder = Recorder(name="here")
    x = recorder.from_numpy(np.ones((2, 3), np.float32))
    (x.exp() @ x.swap_dims(0, 1)).numpy()
    (executable,) = recorder.cache.executables()
    assert executable.reason == "a sequence of operations not seen before"
    assert 0 < executable.compile_s <= recorder.cache.stats.compile_s
    scopes = {f"{op.kind}.{n}" for n, op in enumerate(executable.graph.ops) if op.kind == "Matmul"}
    assert scopes
    assert all(f"/{scope}/" in (executable.compiled.as_text() or "") for scope in scopes)
