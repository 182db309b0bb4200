"""One recorded program on several devices at once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

import ir
from ir.op import Op
from ir.ops.control import DeviceId, ReduceOperation
from ir.tensor import READ_ONLY, READ_WRITE, TensorStatus
from jax_backend import collective
from jax_backend.collective import Engine, Spmd, run_spmd
from jax_backend.dtypes import jax_dtype
from jax_backend.recorder import Recorder

N = 4
DIMS = (2, 3)


def t(id: int, status: TensorStatus = READ_ONLY, dtype: ir.DType = ir.F32) -> ir.TensorIr:
    return ir.tensor(id, DIMS, dtype, status)


def new(id: int, dtype: ir.DType = ir.F32) -> ir.TensorIr:
    return t(id, ir.NOT_INIT, dtype)


def all_reduce(
    source: ir.TensorIr, out: int, group: tuple[int, ...] = tuple(range(N)), how: str = "Sum"
) -> ir.AllReduce:
    devices = tuple(DeviceId(0, n) for n in group)
    return ir.AllReduce(source, new(out, source.dtype), ReduceOperation(how), devices)


def rows(seed: int = 0, dtype: ir.DType = ir.F32) -> np.ndarray:
    """Small integers, so that any order of summing gives the same bits."""
    return np.random.default_rng(seed).integers(-8, 9, (N, *DIMS)).astype(jax_dtype(dtype))


@pytest.fixture(params=Engine, ids=lambda engine: engine.value)
def spmd(request: pytest.FixtureRequest) -> Spmd:
    return Spmd(jax.devices()[:N], engine=request.param)


@pytest.mark.parametrize("how", ["Sum", "Mean"])
@pytest.mark.parametrize("engine", Engine)
def test_a_program_with_a_reduction_in_the_middle(engine: Engine, how: str) -> None:
    x = rows()
    program: list[Op] = [
        ir.Mul(t(0), t(0), new(1)),
        all_reduce(t(1, READ_WRITE), 2, how=how),
        ir.SyncCollective(),
        ir.Sub(t(2, READ_WRITE), t(0), new(3)),
    ]
    results = run_spmd(program, {0: x}, jax.devices()[:N], engine=engine)
    joined = (x * x).sum(0) / (N if how == "Mean" else 1)
    assert list(results) == [3]
    np.testing.assert_array_equal(np.asarray(results[3]), joined - x)


def test_the_values_of_the_specification(spmd: Spmd) -> None:
    pairs = Spmd(spmd.devices[:2], engine=spmd.engine)
    x = np.array([[2, 5], [4, 1]], np.float32)
    for how, want in (("Sum", [6.0, 6.0]), ("Mean", [3.0, 3.0])):
        tensor, out = ir.tensor(0, (2,), ir.F32), ir.tensor(1, (2,), ir.F32, ir.NOT_INIT)
        op = ir.AllReduce(tensor, out, ReduceOperation(how), (DeviceId(0, 1), DeviceId(0, 0)))
        assert np.asarray(pairs.run([op], {0: x})[1]).tolist() == [want, want]


@pytest.mark.parametrize("dtype", [ir.F64, ir.F32, ir.F16, ir.BF16], ids=str)
def test_each_float_dtype_gives_equal_bits_on_every_device(spmd: Spmd, dtype: ir.DType) -> None:
    x = np.random.default_rng(1).normal(size=(N, *DIMS)).astype(jax_dtype(dtype))
    out = np.asarray(spmd.run([all_reduce(t(0, dtype=dtype), 1, how="Mean")], {0: x})[1])
    assert out.dtype == x.dtype
    for row in out[1:]:
        assert row.tobytes() == out[0].tobytes()
    # halves are summed in f32 and rounded once: half a unit in the last place
    tolerance = {ir.F64: 1e-14, ir.F32: 1e-6, ir.F16: 2**-11, ir.BF16: 2**-8}[dtype]
    np.testing.assert_allclose(out[0].astype(np.float64), x.astype(np.float64).mean(0), rtol=1.01 * tolerance)


@pytest.mark.parametrize("groups", [((0, 1), (2, 3)), ((0, 3), (1, 2)), ((0, 2, 3), (1,))], ids=str)
def test_groups_reduce_apart(spmd: Spmd, groups: tuple[tuple[int, ...], ...]) -> None:
    x = rows()
    mine = {position: group for group in groups for position in group}
    streams = [
        [all_reduce(t(0), 1, mine[p]), all_reduce(t(0), 2, mine[p], "Mean"), all_reduce(t(0), 3)] for p in range(N)
    ]
    results = spmd.run(streams, {0: x})
    for position in range(N):
        part = x[list(mine[position])]
        np.testing.assert_array_equal(np.asarray(results[1])[position], part.sum(0))
        np.testing.assert_allclose(np.asarray(results[2])[position], part.mean(0), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(results[3])[position], x.sum(0))


def test_one_executable_serves_other_ids_scalars_and_starts(spmd: Spmd, monkeypatch: pytest.MonkeyPatch) -> None:
    make = collective.program_function
    # the engines of jax trace a function twice: for its shape, and for its code
    monkeypatch.setattr(collective, "program_function", lambda *given: chex.assert_max_traces(make(*given), n=2))
    x = rows()
    for step in range(5):
        base = 10 * step
        window = (ir.SliceRange(step % 2, step % 2 + 1, 1), ir.SliceRange(0, 3, 1))
        program: list[Op] = [
            ir.MulScalar(t(base), ir.scalar(float(step)), new(base + 1)),
            all_reduce(t(base + 1, READ_WRITE), base + 2),
            ir.Slice(t(base + 2, READ_WRITE), window, ir.tensor(base + 3, (1, 3), ir.F32, ir.NOT_INIT)),
        ]
        results = spmd.run(program, {base: x})
        want = (x * np.float32(step)).sum(0)[step % 2 : step % 2 + 1]
        np.testing.assert_array_equal(np.asarray(results[base + 3]), np.broadcast_to(want, (N, 1, 3)))
    assert spmd.num_compiles == 1


def test_results_go_into_the_next_step_where_they_are(spmd: Spmd) -> None:
    x = rows()
    state = spmd.run([ir.MulScalar(t(0), ir.scalar(1.0), new(1))], {0: x})[1]
    assert state.sharding == spmd.by_device
    total = x.astype(np.float64)
    for _ in range(100):
        program = [all_reduce(t(1), 2, how="Mean"), ir.Add(t(1, READ_WRITE), t(2, READ_WRITE), new(3))]
        state = spmd.run(program, {1: state})[3]
        total = total + total.mean(0)
        state, total = spmd.run([ir.MulScalar(t(3, READ_WRITE), ir.scalar(0.5), new(4))], {3: state})[4], total / 2
    np.testing.assert_allclose(np.asarray(state), total, rtol=1e-4, atol=1e-5)
    assert spmd.num_compiles == 3


def test_an_input_used_for_the_last_time_is_donated(spmd: Spmd) -> None:
    kept = jax.device_put(rows(), spmd.by_device)
    spmd.run([all_reduce(t(0), 1)], {0: kept})
    assert not kept.is_deleted()
    spmd.run([all_reduce(t(0, READ_WRITE), 1)], {0: kept})
    assert kept.is_deleted()
    dropped = jax.device_put(rows(), spmd.by_device)
    results = spmd.run([all_reduce(t(0), 1), ir.Drop(t(0))], {0: dropped})
    assert dropped.is_deleted()
    np.testing.assert_array_equal(np.asarray(results[1])[0], rows().sum(0))


def test_arrays_of_single_devices_are_rows(spmd: Spmd) -> None:
    x = rows()
    parts = [jax.device_put(row, device) for row, device in zip(x, spmd.devices, strict=True)]
    out = spmd.run([all_reduce(t(0), 1)], {0: parts})[1]
    np.testing.assert_array_equal(np.asarray(out)[N - 1], x.sum(0))


def test_the_device_at_a_position_draws_what_a_session_with_its_seed_draws(spmd: Spmd) -> None:
    other = Spmd(spmd.devices, engine=spmd.engine, seed=7)
    op = ir.Random(new(1), ir.DistributionParams(Uniform=(0.0, 1.0)))
    first, second = (np.asarray(other.run([op], {})[1]) for _ in range(2))
    for position in range(N):
        recorder = Recorder(seed=7 + position)
        for want in (first, second):
            recorder.register_operation(op)
            got = recorder.read_tensor(t(1, READ_WRITE)).result()
            np.testing.assert_array_equal(np.frombuffer(got.bytes, np.float32).reshape(DIMS), want[position])


# ---- one program on arrays that are spread over the devices


def test_a_sharded_batch_gives_what_one_device_gives() -> None:
    spmd = Spmd(jax.devices()[:N])
    x = np.random.default_rng(2).integers(-4, 5, (8, 3)).astype(np.float32)
    w = np.random.default_rng(3).integers(-4, 5, (3, 2)).astype(np.float32)
    tensor = ir.tensor
    program = [
        ir.Matmul(tensor(0, (8, 3), ir.F32), tensor(1, (3, 2), ir.F32), tensor(2, (8, 2), ir.F32, ir.NOT_INIT)),
        ir.SumDim(tensor(2, (8, 2), ir.F32, READ_WRITE), tensor(3, (1, 2), ir.F32, ir.NOT_INIT), 0, 1),
    ]
    for _ in range(2):
        out = spmd.run_sharded(program, {0: spmd.shard(x), 1: spmd.replicate(w)})[3]
        assert out.is_fully_replicated
        np.testing.assert_array_equal(np.asarray(out), (x @ w).sum(0, keepdims=True))
    assert spmd.num_compiles == 1
    with pytest.raises(ir.ShapeError, match=r"expected a first axis that 4 devices share, got \(3, 2\)"):
        spmd.shard(w)


# ---- what does not fit


def test_an_error_says_what_does_not_fit(spmd: Spmd) -> None:
    x = rows()
    for group, message in (
        ((0, 1), "expected device 2 itself among them, got [0, 1]"),
        ((0, 1, 1, 2), "expected one or more distinct devices"),
        ((0, 1, 2, 4), "expected positions below 4, got [0, 1, 2, 4]"),
    ):
        with pytest.raises(ir.StreamError) as caught:
            spmd.run([all_reduce(t(0), 1, group)], {0: x})
        assert message in str(caught.value)
    with pytest.raises(ir.StreamError, match=r"device 0 reduces over \[0, 1\], device 1 over \[1, 2\]"):
        spmd.run([[all_reduce(t(0), 1, g)] for g in ((0, 1), (1, 2), (1, 2), (3,))], {0: x})
    with pytest.raises(ir.StreamError, match="devices 0 and 2 differ at operation 0"):
        spmd.run([[all_reduce(t(0), 1, how="Mean" if p == 2 else "Sum")] for p in range(N)], {0: x})
    with pytest.raises(ir.StreamError, match="expected one stream for each of 4 devices, got 2"):
        spmd.run([[all_reduce(t(0), 1)]] * 2, {0: x})
    with pytest.raises(ir.DTypeError, match=r"AllReduce\.tensor: expected floats"):
        spmd.run([all_reduce(t(0, dtype=ir.I32), 1)], {0: x.astype(np.int32)})
    with pytest.raises(ir.ShapeError, match=r"tensor 0: expected float32\[4, 2, 3\], got float32\[4, 2, 2\]"):
        spmd.run([all_reduce(t(0), 1)], {0: x[..., :2]})
    with pytest.raises(ir.UnknownHandle, match="tensor 0: the program needs it"):
        spmd.run([all_reduce(t(0), 1)], {})


def test_a_program_of_one_device_reduces_over_itself_alone() -> None:
    recorder = Recorder()
    x = recorder.from_numpy(rows()[0])
    assert (x.all_reduce("Sum", [DeviceId(0, 3)]).numpy() == rows()[0]).all()
    with pytest.raises(ir.StreamError, match=r"AllReduce.device_ids: expected one device, got \[0, 1\]"):
        x.all_reduce("Sum", [DeviceId(0, 0), DeviceId(0, 1)]).numpy()


def test_the_program_of_the_page_runs_on_eight_devices() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "distributed.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    # rows 0..2, 3..5, .. 21..23
    assert [float(n) for n in re.findall(r"[\d.]+", done.stdout)] == [10.5, 11.5, 12.5] * 8
