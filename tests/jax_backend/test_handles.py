"""What a handle table promises about donation and about bytes, alone and under a recorder."""

import jax
import numpy as np
import pytest

import ir
from ir import F32, tensor
from ir.dtype import DType
from ir.tensor import NOT_INIT, READ_WRITE, TensorData, TensorStatus
from jax_backend.handles import HandleTable, MemoryLimit
from jax_backend.host import from_numpy, to_numpy
from jax_backend.recorder import Recorder

DIMS = (256,)


def t(id: int, status: TensorStatus = ir.READ_ONLY, dtype: DType = F32) -> ir.TensorIr:
    return tensor(id, DIMS, dtype, status)


def data(value: float) -> TensorData:
    return from_numpy(np.full(DIMS, value, np.float32), F32)


def test_a_read_under_way_survives_the_donation_of_what_it_reads() -> None:
    recorder = Recorder()
    recorder.register_tensor_data_id(0, data(1.0))
    recorder.register_operation(ir.Add(t(0), t(0), t(1, NOT_INIT)))
    reading = recorder.read_tensor(t(1))
    recorder.register_operation(ir.Add(t(1, READ_WRITE), t(0), t(2, NOT_INIT)))
    recorder.flush()
    np.testing.assert_array_equal(to_numpy(reading.result()), np.full(DIMS, 2.0))
    np.testing.assert_array_equal(to_numpy(recorder.read_tensor(t(2)).result()), np.full(DIMS, 3.0))


def test_an_array_taken_by_another_recorder_of_the_device_is_donated_by_neither() -> None:
    first, second = Recorder(), Recorder()
    first.register_tensor_data_id(0, data(1.0))
    second.register_handle(5, first.take_handle(t(0)))
    for recorder, id in ((first, 0), (second, 5)):
        recorder.register_operation(ir.Add(t(id, READ_WRITE), t(id), t(9, NOT_INIT)))
        np.testing.assert_array_equal(to_numpy(recorder.read_tensor(t(9)).result()), np.full(DIMS, 2.0))


def test_a_read_reports_a_failure_in_place_of_the_next_sync() -> None:
    recorder = Recorder()
    recorder.register_operation(ir.Add(t(98), t(99), t(1, NOT_INIT)))
    with pytest.raises(ir.UnknownHandle):
        recorder.read_tensor(t(1)).result()
    recorder.sync()


def test_bytes_beyond_the_limit_are_refused_until_some_are_freed() -> None:
    table = HandleTable(max_bytes=2500)
    for id in (1, 2):
        table.reserve(1024)
        table.put(id, jax.device_put(np.zeros(DIMS, np.float32)))
    with pytest.raises(MemoryLimit, match=r"at most 2,500 bytes .* got 2,048 live ones and 1,024 more"):
        table.reserve(1024)
    table.free(1)
    table.reserve(1024)


def test_a_program_too_large_for_the_session_fails_and_the_rest_lives_on() -> None:
    recorder = Recorder(max_bytes=1 << 20)
    recorder.register_tensor_data_id(0, data(3.0))
    huge = tensor(1, (1 << 40,), F32, NOT_INIT)
    recorder.register_operation(ir.Zeros(huge))
    with pytest.raises(MemoryLimit, match="--max-live-bytes"):
        recorder.read_tensor(tensor(1, (1 << 40,), F32)).result()
    np.testing.assert_array_equal(to_numpy(recorder.read_tensor(t(0)).result()), np.full(DIMS, 3.0))
