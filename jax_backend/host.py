"""Between jax arrays and tensor data: the only place that blocks on a device.

A quantized tensor is one flat uint8 array on a device: its bytes as they travel.
"""

from functools import cache

import jax
import numpy as np

from ir.dtype import BoolStore, DType
from ir.errors import IrError
from ir.tensor import TensorData
from jax_backend.dtypes import jax_dtype
from jax_backend.types import Device

Array = jax.Array


def element_dtype(dtype: DType) -> np.dtype:
    """The NumPy dtype of one element of tensor data: bools by their store, quantized data by byte."""
    if dtype.is_quantized:
        return np.dtype(np.uint8)
    if dtype.is_bool:
        return np.dtype(np.uint32 if dtype.store is BoolStore.U32 else np.uint8)  # type: ignore[union-attr]
    return jax_dtype(dtype)


def to_numpy(data: TensorData) -> np.ndarray:
    """`data` as an array: a view of its bytes, except for bools, where any non-zero element is true."""
    flat = np.frombuffer(data.bytes, element_dtype(data.dtype))
    if data.dtype.is_quantized:
        return flat
    array = flat.reshape(data.shape)
    return array != 0 if data.dtype.is_bool else array


def from_numpy(array: np.ndarray, dtype: DType) -> TensorData:
    """Tensor data of `dtype` with the elements of `array`, which is copied only where it is not contiguous."""
    wanted = np.ascontiguousarray(array, element_dtype(dtype))
    return TensorData(wanted.reshape(-1).view(np.uint8).data, tuple(array.shape), dtype)


def to_device(data: TensorData, device: Device) -> Array:
    """The array of `data` on `device`.

    The bytes may be shared with the array on CPU: nobody may write to them afterwards.
    """
    array = to_numpy(data)
    with jax.enable_x64(True):
        # 37 us for a batch of digits in the middle of a stream; `jax.device_put` of the same takes 66.
        return jax.make_array_from_callback(array.shape, _on(device), lambda _: array)


@cache
def _on(device: Device) -> jax.sharding.SingleDeviceSharding:
    return jax.sharding.SingleDeviceSharding(device)


def to_host(array: Array, dtype: DType, shape: tuple[int, ...]) -> TensorData:
    """Wait for `array` and bring it to the host as `dtype`.

    Raises:
        IrError: the device failed while computing it.
    """
    try:
        on_host = np.asarray(array)
    except Exception as reason:
        raise IrError(f"the device failed: {reason}") from reason
    if dtype.is_quantized:
        return TensorData(memoryview(on_host.tobytes()), shape, dtype)
    return from_numpy(on_host, dtype)


def copy(array: Array) -> Array:
    """A second buffer with the elements of `array`, on its device, for a program that reuses its input."""
    with jax.enable_x64(True):
        return array.copy()


def block(arrays: list[Array]) -> None:
    """Wait until every array is computed.

    Raises:
        IrError: the device failed while computing one.
    """
    try:
        jax.block_until_ready(arrays)
    except Exception as reason:
        raise IrError(f"the device failed: {reason}") from reason
