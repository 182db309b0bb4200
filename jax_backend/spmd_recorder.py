"""Tensors on several devices, with the operators and methods of any recorder's.

    recorder = SpmdRecorder(Spmd(jax.devices()))
    x = recorder.shard(images)                           # each device has a part of the rows
    mean = recorder.joined(x.mean_dim(0))                # the mean over all devices, on each

A stream that is recorded once runs on every device: `from_numpy` gives each the same tensor, `shard` each its part,
and `numpy` reads that of the first.
"""

from collections.abc import Sequence
from itertools import count
from typing import Final

import jax
import numpy as np

from ir.errors import UnknownHandle
from ir.op import Op
from ir.ops.control import DeviceId, Drop, ReduceOperation
from ir.tensor import READ_WRITE, TensorData, TensorIr, tensor
from jax_backend import host
from jax_backend.collective import Spmd
from jax_backend.dtypes import ir_dtype
from jax_backend.reads import ReadResult
from jax_backend.tensor import Tensor, TensorRecorder


class SpmdRecorder(TensorRecorder):
    """Records for all devices of `spmd` at once, and runs at each read.

    Args:
        spmd: the devices, and what is compiled for them.
        is_sharded: let XLA split the work: tensors have the shapes that one device would see, and `joined` has nothing
            to do.
    """

    def __init__(self, spmd: Spmd, *, is_sharded: bool = False) -> None:
        self.spmd: Final = spmd
        self.is_sharded: Final = is_sharded
        self._ids = count()
        self._pending: list[Op] = []
        self._arrays: dict[int, jax.Array] = {}
        self._live: dict[int, TensorIr] = {}

    def new_id(self) -> int:
        """A tensor id that this recorder has not handed out before."""
        return next(self._ids)

    def register_operation(self, operation: Op) -> None:
        """Append an operation, to run at the next read."""
        self._pending.append(operation)
        self._live.update((t.id.value, t) for t in operation.outputs)

    def register_tensor_data(self, data: TensorData) -> TensorIr:
        """Bring data to every device under a fresh id."""
        array = host.to_numpy(data)
        if self.is_sharded:
            return self._keep(self.spmd.replicate(array), data.shape)
        rows = np.broadcast_to(array, (len(self.spmd.devices), *array.shape))
        return self._keep(self.spmd.shard(rows), data.shape)

    def shard(self, array: np.ndarray) -> Tensor:
        """Bring to each device its part of `array`, cut along the first axis.

        Raises:
            ShapeError: the axis does not divide by the number of devices.
        """
        parts = self.spmd.shard(array)
        if self.is_sharded:
            return self.wrap(self._keep(parts, array.shape))
        num_devices = len(self.spmd.devices)
        shape = (array.shape[0] // num_devices, *array.shape[1:])
        return self.wrap(self._keep(self.spmd.shard(array.reshape(num_devices, *shape)), shape))

    def joined(self, part: Tensor, how: ReduceOperation = ReduceOperation.Mean) -> Tensor:
        """`part` joined with that of the other devices."""
        if self.is_sharded:
            return part
        everyone = [DeviceId(0, position) for position in range(len(self.spmd.devices))]
        return part.all_reduce(how, everyone)

    def read_tensor(self, tensor: TensorIr) -> ReadResult:
        """Run what is pending and begin to read the tensor of the first device."""
        self.flush()
        array = self._arrays.get(tensor.id.value)
        if array is None:
            return ReadResult(tensor, None, UnknownHandle(f"no tensor has the id {tensor.id.value}"))
        first = array.addressable_data(0)
        with jax.enable_x64(True):
            return ReadResult(tensor, first if self.is_sharded else jax.lax.squeeze(first, (0,)))

    def drop(self, id: int) -> None:
        """Forget a tensor; one that is gone already is no error."""
        dropped = self._live.pop(id, None)
        if dropped is not None:
            self._pending.append(Drop(tensor(id, dropped.shape.dims, dropped.dtype, READ_WRITE)))

    def live_ids(self) -> list[int]:
        """The tensors that the devices hold."""
        return list(self._arrays)

    def flush(self) -> None:
        """Run everything that is pending."""
        self.drop_unreachable()
        pending, self._pending = self._pending, []
        if any(not isinstance(op, Drop) for op in pending):
            run = self.spmd.run_sharded if self.is_sharded else self.spmd.run
            self._arrays |= run(pending, self._arrays)
        for op in pending:
            if isinstance(op, Drop):
                self._arrays.pop(op.tensor.id.value, None)

    def _keep(self, array: jax.Array, shape: Sequence[int]) -> TensorIr:
        made = tensor(self.new_id(), tuple(shape), ir_dtype(array.dtype))
        self._arrays[made.id.value] = array
        self._live[made.id.value] = made
        return made
