"""Tensors on several devices at once, and training on them."""

import json

import jax
import numpy as np
import pytest
from click.testing import CliRunner

import ir
from jax_backend.cli import cli
from jax_backend.collective import Engine, Spmd
from jax_backend.demo.digits import BATCH, Digits
from jax_backend.demo.parallel import ALL_REDUCE, ONE, SHARDED, run
from jax_backend.devices import NoSuchDevice, first_devices
from jax_backend.spmd_recorder import SpmdRecorder

N = 4


@pytest.fixture(params=["rows", "pmap", "sharded"])
def recorder(request: pytest.FixtureRequest) -> SpmdRecorder:
    engine = Engine.pmap if request.param == "pmap" else Engine.shard_map
    return SpmdRecorder(Spmd(jax.devices()[:N], engine=engine), is_sharded=request.param == "sharded")


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).integers(-8, 9, shape).astype(np.float32)


def test_a_sum_over_a_shared_axis_is_that_of_one_device(recorder: SpmdRecorder) -> None:
    x, w = integers(8, 3), integers(1, 3)
    parts = recorder.shard(x) * recorder.from_numpy(w)
    total = recorder.joined(parts.sum_dim(0), ir.ReduceOperation.Sum)
    np.testing.assert_array_equal(total.numpy(), (x * w).sum(0, keepdims=True))
    np.testing.assert_array_equal((total / 2).numpy(), (x * w).sum(0, keepdims=True) / 2)


def test_steps_leave_uploads_alone_and_nothing_behind(recorder: SpmdRecorder) -> None:
    first = integers(8, 3)
    before = first.copy()
    state = recorder.from_numpy(first)
    for _ in range(5):
        state = recorder.joined(state * 0.5) + state
        state.numpy()
    np.testing.assert_allclose(state.numpy(), before * 1.5**5)
    np.testing.assert_array_equal(first, before)
    assert recorder.spmd.num_compiles == 1
    del state
    recorder.flush()
    assert recorder.live_ids() == []


def test_random_numbers_differ_between_devices() -> None:
    recorder = SpmdRecorder(Spmd(jax.devices()[:N]))
    drawn = recorder.random((3,))
    mean = recorder.joined(drawn).numpy()
    assert not np.allclose(mean, drawn.numpy())


def some_digits(count: int, seed: int) -> Digits:
    random = np.random.default_rng(seed)
    return Digits(random.random((count, 64), np.float32), random.integers(0, 10, count).astype(np.int32))


@pytest.mark.parametrize("how", [ALL_REDUCE, SHARDED])
def test_training_on_several_devices_follows_the_curve_of_one(how: str) -> None:
    learn, test = some_digits(4 * BATCH, 0), some_digits(20, 1)
    one = run(jax.devices()[:1], ONE, learn, test, 3, 2)
    several = run(jax.devices()[:N], how, learn, test, 3, 2)
    assert len(one.losses) == 8
    assert one.losses[0] > one.losses[-1]
    assert several.num_devices == N
    # f32 sums in another order, over 8 steps
    assert several.difference(one) < 1e-5
    assert several.accuracy == one.accuracy


def test_devices_that_cannot_share_a_batch_are_refused() -> None:
    with pytest.raises(ir.ShapeError, match="divides the batch of 64, got 3"):
        run(jax.devices()[:3], ALL_REDUCE, some_digits(64, 0), some_digits(2, 0), 0, 1)
    with pytest.raises(NoSuchDevice, match="expected 999 devices"):
        first_devices(None, 999)


def test_the_command_compares_both_ways_with_one_device() -> None:
    done = CliRunner().invoke(
        cli, ["demo", "digits", "--data-parallel", "2", "--epochs", "1", "--json", "--no-cache"], catch_exceptions=False
    )
    runs = json.loads(done.output)
    assert [(r["how"], r["num_devices"]) for r in runs] == [(ONE, 1), (ALL_REDUCE, 2), (SHARDED, 2)]
    assert all(r["difference"] < 1e-5 and len(r["losses"]) == 22 for r in runs)
