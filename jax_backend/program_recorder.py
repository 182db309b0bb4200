"""Records tensors into a program, without running anything.

with record() as tape:
x = tape.input("x", (2, 3))
w = tape.from_numpy(np.ones((3, 2), np.float32), name="w")
y = (x @ w + 1).softmax(1)
program = tape.program(y)
program(np.zeros((2, 3), np.float32))     # w has its recorded value unless it is given
"""

import os
from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

import numpy.typing as npt

from ir.dtype import F32, DType
from ir.errors import IrError
from ir.op import Op
from ir.ops.control import Drop, Init
from ir.tensor import TensorData, TensorIr, tensor
from jax_backend import host
from jax_backend.program import Program
from jax_backend.recording import Recording
from jax_backend.tensor import Tensor, TensorRecorder


class ProgramRecorder(TensorRecorder):
    """A recorder whose stream is kept and handed out as programs.

    A tensor that is read runs what it needs; it and its answer are part of what `save` writes.

    Args:
        seed: of the random state.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.recording: Final = Recording()
        self._inputs: list[int] = []
        self._ids = count()
        self.seed(seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.drop_unreachable()

    # ---- recording

    def input(self, name: str, shape: Sequence[int], dtype: DType = F32) -> Tensor:
        """A tensor that a call has to give."""
        made = tensor(self.new_id(), tuple(shape), dtype)
        self._name(made, name)
        return self.wrap(made)

    def from_numpy(self, array: npt.ArrayLike, dtype: DType | None = None, *, name: str = "") -> Tensor:
        """A tensor with the elements of `array`, which a call may replace; see `TensorRecorder.from_numpy`."""
        made = super().from_numpy(array, dtype)
        if name:
            self._name(made.description, name)
        return made

    def name(self, given: Tensor, name: str) -> Tensor:
        """`given`, called `name` in programs from now on.

        Raises:
            ValueError: another tensor has this name.
        """
        self._name(given.description, name)
        return given

    def _name(self, given: TensorIr, name: str) -> None:
        names = self.recording.names
        if name in names.values() and names.get(given.id.value) != name:
            raise ValueError(f"name: another tensor is called {name!r} already")
        names[given.id.value] = name
        if given.id.value not in self.recording.made:
            self._inputs.append(given.id.value)

    def new_id(self) -> int:
        """A tensor id that this recorder has not handed out before."""
        return next(self._ids)

    def register_operation(self, operation: Op) -> None:
        """Append an operation."""
        if isinstance(operation, Drop):
            self.drop(operation.tensor.id.value)
        elif not isinstance(operation, Init):
            self.recording.append(operation)

    def register_tensor_data(self, data: TensorData) -> TensorIr:
        """Keep data as an input."""
        made = tensor(self.new_id(), tuple(data.shape), data.dtype)
        self.recording.data[made.id.value] = data
        return made

    def drop(self, id: int) -> None:
        """Forget a tensor."""
        self.recording.end(id)

    def seed(self, value: int) -> None:
        """Start the random numbers over, from this point of the stream on."""
        self.recording.cut("seed")
        self.recording.seeds.append((len(self.recording.ops), value))

    def read_tensor(self, tensor: TensorIr) -> "ComputedRead":
        """Begin to read a tensor."""
        return ComputedRead(self.recording, tensor)

    # ---- programs

    def program(self, *outputs: Tensor, name: str = "program", **options: Any) -> Program:
        """What was recorded, as a function of the inputs in the order in which they were named.

        Args:
            outputs: what comes out; by default every tensor that is still referred to.
            name: in reports.
            options: as for `Program`.

        Raises:
            IrError: nothing was recorded, or the random numbers were started over in between.
        """
        self.drop_unreachable()
        everything = slice(0, len(self.recording.ops))
        ids = [t.id for t in outputs] or None
        return self.recording.program(everything, ids, order=self._inputs, name=name, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was recorded to a session file (`.bxs`), with every read and its answer."""
        self.drop_unreachable()
        self.recording.save(path)


class ComputedRead:
    """A read of a tensor that is computed when it is asked for."""

    def __init__(self, recording: Recording, tensor: TensorIr) -> None:
        self._recording = recording
        self._tensor = tensor

    def result(self) -> TensorData:
        """The data.

        Raises:
            IrError: an input that it depends on has no value.
        """
        data = self._data()
        self._recording.read(self._tensor, data)
        return data

    def _data(self) -> TensorData:
        id = self._tensor.id.value
        if id in self._recording.data:
            return self._recording.data[id]
        if id not in self._recording.made:
            raise IrError(f"{self._recording.names.get(id, self._tensor)}: an input has no value while recording")
        made = self._recording.made[id] + 1
        try:
            array = self._recording.program(slice(0, made), [id])()
        except TypeError as reason:
            raise IrError(str(reason)) from reason
        return host.to_host(array, self._tensor.dtype, self._tensor.shape.dims)


def record(*, seed: int = 0) -> ProgramRecorder:
    """A recorder for a `with` block, whose `program` is what was recorded in it."""
    return ProgramRecorder(seed=seed)
