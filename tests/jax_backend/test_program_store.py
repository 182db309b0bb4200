"""Programs that outlive the process."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ir
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.capturing import CapturingRecorder
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.program_store import SUFFIX, ProgramStore
from jax_backend.recorder import Recorder

DIMS = (2, 3)


def t(id: int, status: ir.TensorStatus = ir.READ_ONLY) -> ir.TensorIr:
    return ir.tensor(id, DIMS, ir.F32, status)


def double(cache: ProgramCache, by: float = 2.0, device: int = 0) -> np.ndarray:
    recorder = Recorder(jax.devices()[device], cache=cache, seed=0)
    data = host.from_numpy(np.arange(6, dtype=np.float32).reshape(DIMS), ir.F32)
    recorder.register_tensor_data_id(0, data)
    recorder.register_operation(ir.MulScalar(t(0, ir.READ_WRITE), ir.scalar(by), t(1, ir.NOT_INIT)))
    recorder.register_operation(ir.Random(t(2, ir.NOT_INIT), ir.DefaultDistribution.Default))
    recorder.register_operation(ir.Add(t(1, ir.READ_WRITE), t(2, ir.READ_WRITE), t(3, ir.NOT_INIT)))
    return host.to_numpy(recorder.read_tensor(t(3)).result())


def test_a_second_cache_loads_what_the_first_one_compiled(tmp_path: Path) -> None:
    first, second = (ProgramCache(store=ProgramStore(tmp_path)) for _ in range(2))
    made = double(first)
    np.testing.assert_array_equal(double(second), made)
    assert (first.stats.compiles, first.stats.loads) == (1, 0)
    assert (second.stats.compiles, second.stats.loads) == (0, 1)
    assert second.stats.reasons[0].startswith("stream: loaded 3 ops")


def test_a_loaded_program_takes_new_scalars(tmp_path: Path) -> None:
    double(ProgramCache(store=ProgramStore(tmp_path)))
    loaded = ProgramCache(store=ProgramStore(tmp_path))
    difference = double(loaded, by=5.0) - double(loaded, by=2.0)
    np.testing.assert_allclose(difference, 3.0 * np.arange(6).reshape(DIMS), rtol=1e-6)
    assert loaded.stats.compiles == 0


@pytest.mark.parametrize("precision", [jax.lax.Precision.DEFAULT])
def test_another_precision_is_another_program(tmp_path: Path, precision: jax.lax.Precision) -> None:
    double(ProgramCache(store=ProgramStore(tmp_path)))
    other = ProgramCache(store=ProgramStore(tmp_path), precision=precision)
    double(other)
    assert (other.stats.compiles, other.stats.loads) == (1, 0)


def test_another_device_is_another_program(tmp_path: Path) -> None:
    double(ProgramCache(store=ProgramStore(tmp_path)))
    other = ProgramCache(store=ProgramStore(tmp_path))
    double(other, device=1)
    assert (other.stats.compiles, other.stats.loads) == (1, 0)


@pytest.mark.parametrize("content", [b"", b"not a program", b"\x80\x05K\x01."])
def test_a_damaged_file_is_compiled_again(tmp_path: Path, content: bytes) -> None:
    expected = double(ProgramCache(store=ProgramStore(tmp_path)))
    (stored,) = tmp_path.glob(f"*{SUFFIX}")
    stored.write_bytes(content)
    again = ProgramCache(store=ProgramStore(tmp_path))
    np.testing.assert_array_equal(double(again), expected)
    assert again.stats.compiles == 1
    assert stored.stat().st_size > len(content)


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_store(tmp_path: Path) -> None:
    cache = ProgramCache(store=ProgramStore(tmp_path / "missing"))
    assert double(cache).shape == DIMS


def test_a_custom_operation_is_not_stored(tmp_path: Path) -> None:
    custom = CustomOpRegistry()
    custom.register("test::triple", lambda op, inputs: inputs[0] * np.float32(3))
    recorder = Recorder(cache=ProgramCache(custom, store=ProgramStore(tmp_path)))
    recorder.register_tensor_data_id(0, host.from_numpy(np.ones(DIMS, np.float32), ir.F32))
    recorder.register_operation(ir.Custom("test::triple", (t(0),), (t(1, ir.NOT_INIT),), ()))
    np.testing.assert_array_equal(host.to_numpy(recorder.read_tensor(t(1)).result()), np.full(DIMS, 3.0))
    assert not list(tmp_path.iterdir())


def test_what_jax_had_on_disk_is_not_stored_again(tmp_path: Path) -> None:
    session = tmp_path / "session.bxs"
    with session.open("wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        recorder.from_numpy(np.ones((64, 10), np.float32)).softmax(1).numpy()
    environment = {**os.environ, "BURN_XLA_CACHE": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "jax_backend", "run", "--check", str(session)]

    def run() -> None:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    run()
    (stored,) = (tmp_path / "cache").glob(f"*{SUFFIX}")
    stored.unlink()
    run()
    run()
