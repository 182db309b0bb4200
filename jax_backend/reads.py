"""Reads under way."""

from typing import Final

import jax

from ir.errors import IrError
from ir.tensor import TensorData, TensorIr
from jax_backend import host


class ReadResult:
    """A read under way: `result()` waits for the device and brings the data to the host. Any thread may wait."""

    def __init__(self, tensor: TensorIr, array: jax.Array | None, failure: IrError | None = None) -> None:
        self.tensor: Final = tensor
        self._array = array
        self._failure = failure

    @property
    def is_ready(self) -> bool:
        """`result()` would not wait for the device."""
        return self._array is None or bool(self._array.is_ready())  # pyright: ignore[reportAttributeAccessIssue]

    def result(self) -> TensorData:
        """The data, in the dtype that was asked for.

        Raises:
            IrError: the operation that should have made the tensor failed, or the device did.
        """
        return host.to_host(self.array(), self.tensor.dtype, self.tensor.shape.dims)

    def array(self) -> jax.Array:
        """The array on its device, not waited for.

        Raises:
            IrError: as `result`.
        """
        if self._array is None:
            assert self._failure is not None
            raise self._failure
        return self._array
