"""Where the operations of a recording run, one by one, so that two runs can be held against each other.

| side | what it is |
|---|---|
| `eager` | each operation by itself, uncompiled |
| `compiled` | the programs that a recorder makes |
| `f64` | as `eager`, with all floats in float64 |
| `recorded` | the answers in the file: only what was read has a value |
| `ws://host:port` | a running server, Burn's own or this one |

`cpu`, `gpu`, `tpu` or the number of a device may stand in front: `gpu+compiled`. A device alone means `eager` on it.

Promise: a side gives the outputs of each operation in order; where they are random, those that it is given.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from msgspec.structs import replace

from ir.dtype import F64, DType
from ir.errors import IrError
from ir.op import Op, map_tensors
from ir.operation import operation
from ir.stream import SymbolTable
from ir.tensor import READ_ONLY, TensorData, TensorId, TensorIr
from ir.wire.messages import ReadTensor, RegisterOperation, RegisterTensor, Seed, TensorResult
from ir.wire.values import StreamId
from jax_backend import devices, host
from jax_backend.answers import failure_of
from jax_backend.custom_ops import default_custom_ops
from jax_backend.dtypes import jax_dtype
from jax_backend.executable import Packer
from jax_backend.interpreter import draw_key, run_op
from jax_backend.ops.quantize import touches_quantized
from jax_backend.recording import Recording, Span
from jax_backend.rng import RandomState
from jax_backend.session_client import SessionClient
from jax_backend.types import Array, Device

Values: TypeAlias = dict[int, np.ndarray]
"""Arrays on the host, by tensor id: bools as bools, a quantized tensor as its bytes."""
Given: TypeAlias = Mapping[int, np.ndarray]

STREAM: Final = StreamId(0)


class OperationFailed(IrError):
    """An operation failed on a side; `place` is where it stands in the recording, `reason` what it raised."""

    def __init__(self, side: str, place: int, op: Op, reason: Exception) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"{side}: op {place}: {op}: {reason}")


class Side(ABC):
    """A way to run a recording; `name` is what the user calls it."""

    def __init__(self, name: str) -> None:
        self.name: Final = name

    @abstractmethod
    def run(self, recording: Recording, given: Given) -> Iterator[Values]:
        """The outputs of each operation in order.

        Args:
            recording: what to run.
            given: random outputs by id, there before their operation's turn comes; a side that has the same random
                numbers by itself does not look.

        Raises:
            OperationFailed: an operation failed.
        """


class Eager(Side):
    """Each operation by itself on one device, in the dtypes that `widen` makes of it."""

    def __init__(self, name: str, device: Device, widen: Callable[[Op], Op] = lambda op: op) -> None:
        super().__init__(name)
        self.device: Final = device
        self._widen = widen
        self._table = SymbolTable()
        self._custom_ops = default_custom_ops()

    def run(self, recording: Recording, given: Given) -> Iterator[Values]:
        """See `Side`."""
        with jax.enable_x64(True):
            arrays = {id: host.to_device(data, self.device) for id, data in recording.data.items()}
        random = RandomState(recording.seed_at(0))
        seeds = dict(recording.seeds)
        for place, op in enumerate(recording.ops):
            if place in seeds:
                random.seed(seeds[place])
            try:
                outputs = self._outputs(self._widen(op), arrays, random)
            except Exception as reason:
                raise OperationFailed(self.name, place, op, reason) from reason
            arrays.update(outputs)
            yield {id: np.asarray(array) for id, array in outputs.items()}

    def _outputs(self, op: Op, arrays: Mapping[int, Array], random: RandomState) -> dict[int, Array]:
        entry = self._table.entry(op)
        packer = Packer(entry.symbol.scalars, 0, op.uses_random)
        with jax.enable_x64(True), jax.default_device(self.device):
            words = jnp.asarray(packer.pack(entry.scalars, (), random.take(1) if op.uses_random else ()))
            scalars, _, key = packer.unpack(words)
            (canonical,) = entry.symbol.ops
            operands = dict(zip(entry.ids, [*op.inputs, *op.outputs], strict=True))
            inputs = [_as_declared(arrays[id], operands[id]) for id in entry.inputs]
            results = run_op(
                canonical,
                lambda t: inputs[t.id.value],
                iter(scalars),
                iter(entry.starts),
                lambda: draw_key(_known(key), 0),
                self._custom_ops,
            )
        return {t.id.value: array for t, array in zip(op.outputs, results, strict=True)}


def _known(key: Array | None) -> Array:
    assert key is not None
    return key


def _as_declared(array: Array, declared: TensorIr) -> Array:
    """`array` in the dtype in which an operation takes it: on a widened side another one may have made it."""
    if declared.dtype.is_quantized or array.dtype == jax_dtype(declared.dtype):
        return array
    return array.astype(jax_dtype(declared.dtype))


def widened(op: Op) -> Op:
    """`op` with all its floats in float64. Random numbers and what touches quantized tensors stay as they are."""
    if op.uses_random or touches_quantized(op):
        return op
    return map_tensors(op, lambda t: replace(t, dtype=F64) if _is_narrow(t.dtype) else t)


def _is_narrow(dtype: DType) -> bool:
    return dtype.is_float and not dtype.is_quantized


class Compiled(Side):
    """The programs that a recorder makes of the recording, compiled.

    What a program gives is from that program; what stays inside it is from a second one that brings everything out, and
    is fused less for that. A difference that fusion alone makes is found at the results of a program.
    """

    def __init__(self, name: str, device: Device) -> None:
        super().__init__(name)
        self.device: Final = device

    def run(self, recording: Recording, given: Given) -> Iterator[Values]:
        """See `Side`."""
        arrays: dict[int, Any] = {id: host.to_numpy(data) for id, data in recording.data.items()}
        for span in recording.spans():
            ops = recording.ops[span.start : span.stop]
            inside = [t.id.value for op in ops for t in op.outputs]
            results = recording.outputs(span.start, span.stop)
            for ids in (inside, results) if results and results != inside else (inside,):
                self._run(recording, span, ids, arrays)
            for op in ops:
                yield {t.id.value: np.asarray(arrays[t.id.value]) for t in op.outputs}

    def _run(self, recording: Recording, span: Span, ids: Sequence[int], arrays: dict[int, Any]) -> None:
        """Run the operations of `span` on `arrays`, and put `ids` there."""
        program = recording.program(span, ids)
        known = {program.name_of(id): arrays[id] for id in (program.bindings.ids[n] for n in program.graph.inputs)}
        try:
            made = program.compile(self.device).run(**known)
        except Exception as reason:
            place = span.start + int(getattr(reason, "position", 0))
            raise OperationFailed(self.name, place, recording.ops[place], reason) from reason
        arrays.update((id, made[program.name_of(id)]) for id in ids)


class Recorded(Side):
    """The answers in the file. A tensor keeps its value, so that its answer belongs to the operation that made it."""

    def __init__(self) -> None:
        super().__init__("recorded")

    def run(self, recording: Recording, given: Given) -> Iterator[Values]:
        """See `Side`."""
        answers = {
            read.tensor.id.value: host.to_numpy(read.answer.Ok)
            for read in recording.reads
            if read.answer is not None and isinstance(read.answer.Ok, TensorData)
        }
        for op in recording.ops:
            yield {t.id.value: answers[t.id.value] for t in op.outputs if t.id.value in answers}


class Remote(Side):
    """A running server. Random outputs are sent to it: its numbers are others."""

    def run(self, recording: Recording, given: Given) -> Iterator[Values]:
        """See `Side`."""
        requests = count(1)
        with SessionClient(self.name) as client:
            client.tell(Seed(recording.seed_at(0)))
            client.tell(*[RegisterTensor(STREAM, TensorId(id), data) for id, data in recording.data.items()])
            for place, op in enumerate(recording.ops):
                if op.uses_random:
                    tensors = [(t, host.from_numpy(given[t.id.value], t.dtype)) for t in op.outputs]
                    client.tell(*[RegisterTensor(STREAM, t.id, data) for t, data in tensors])
                else:
                    client.tell(RegisterOperation(STREAM, operation(op)))
                yield {t.id.value: self._read(client, next(requests), t, place, op) for t in op.outputs}

    def _read(self, client: SessionClient, request: int, tensor: TensorIr, place: int, op: Op) -> np.ndarray:
        content = client.ask(ReadTensor(request, STREAM, replace(tensor, status=READ_ONLY)))
        found = content.ReadTensor
        if isinstance(found, TensorResult) and isinstance(found.Ok, TensorData):
            return host.to_numpy(found.Ok)
        raise OperationFailed(self.name, place, op, IrError(failure_of(content) or "no data came"))


def parse(name: str) -> Side:
    """The side that a user names: see the table of this module.

    Raises:
        IrError: there is no such side or device.
    """
    if name.startswith("ws://"):
        return Remote(name.rstrip("/"))
    if name == "recorded":
        return Recorded()
    place, _, how = name.rpartition("+")
    if not place and (how.isdigit() or how in ("cpu", "gpu", "tpu")):
        place, how = how, "eager"
    if how not in _KINDS:
        raise IrError(f"side: expected one of {', '.join(_KINDS)}, recorded, a device or ws://host:port, got {name!r}")
    return _KINDS[how](name, devices.find_device(place) if place else jax.devices()[0])


_KINDS: Final[dict[str, Callable[[str, Device], Side]]] = {
    "eager": lambda name, device: Eager(name, device),
    "compiled": Compiled,
    "f64": lambda name, device: Eager(name, device, widened),
}
