"""What tests of recorders share: tensors of one shape, and how they go in and come out."""

import numpy as np

import ir
from ir.tensor import READ_ONLY, TensorStatus
from jax_backend import host
from jax_backend.recorder import Recorder

DIMS = (2, 3)


def t(id: int, status: TensorStatus = READ_ONLY, dims: tuple[int, ...] = DIMS) -> ir.TensorIr:
    return ir.tensor(id, dims, ir.F32, status)


def out(id: int, dims: tuple[int, ...] = DIMS) -> ir.TensorIr:
    return t(id, ir.NOT_INIT, dims)


def upload(recorder: Recorder, id: int, value: float | np.ndarray, dims: tuple[int, ...] = DIMS) -> None:
    array = np.broadcast_to(np.asarray(value, np.float32), dims)
    recorder.register_tensor_data_id(id, host.from_numpy(array, ir.F32))


def read(recorder: Recorder, id: int, status: TensorStatus = READ_ONLY, dims: tuple[int, ...] = DIMS) -> np.ndarray:
    return host.to_numpy(recorder.read_tensor(t(id, status, dims)).result())
