"""One recorded program on several devices at once.

    step = [ir.Mul(x, x, y), ir.AllReduce(y, out, ir.ReduceOperation.Mean, everyone)]
    results = run_spmd(step, {0: np.ones((4, 2, 3), np.float32)}, jax.devices()[:4])

Arrays have a leading axis with one row per device, as those of `jax.pmap`; positions on it are those that `AllReduce`
names. `run_sharded` is the other way: the program as if for one device, on arrays that are spread over several.

Promise: results stay where they are made; one executable per program and signature, compiled ahead of time; what a
program uses for the last time is donated.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ir.errors import DTypeError, ShapeError, StreamError, UnknownHandle
from ir.op import Op
from ir.ops.control import AllReduce
from ir.stream import RelativeGraph, Segment, SymbolTable, build_graph, segment, split_drops, survivors
from jax_backend.custom_ops import CustomOpRegistry, default_custom_ops
from jax_backend.executable import Packer, abstract_value, program_function, usable_donations
from jax_backend.ops._shared import precision
from jax_backend.ops.control import Partition, device_axis
from jax_backend.rng import RandomState
from jax_backend.types import Device

AXIS: Final = "devices"
"""The name of the leading axis."""

MAX_PROGRAMS: Final = 256
"""Programs that a `Spmd` keeps; the oldest goes first."""

_LAUNCH: Final = threading.Lock()

Operand: TypeAlias = "jax.Array | np.ndarray | Sequence[jax.Array]"
"""Rows per device: an array (devices, ...), or the arrays of the single devices; over several processes, of theirs."""


class Engine(Enum):
    """How a program gets to several devices; the numbers are the same."""

    shard_map = "shard_map"
    pmap = "pmap"


class _Plan(NamedTuple):
    """A stream taken apart; `outputs` are the ids that survive it, `ended` those that it uses for the last time."""

    part: Segment
    outputs: tuple[int, ...]
    ended: frozenset[int]

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides the program's code, the devices left out."""
        numbers = self.part.numbers
        return self.part.key, tuple([numbers[i] for i in self.outputs]), frozenset(map(numbers.get, self.ended))


def _plan(ops: Sequence[Op], table: SymbolTable) -> _Plan:
    kept, dropped = split_drops(ops)
    part = segment([table.entry(op) for op in kept])
    outputs = tuple(id for id in survivors(part, dropped) if id not in dropped)
    return _Plan(part, outputs, frozenset(part.consumed) | dropped.keys())


class _Executable(NamedTuple):
    """A compiled program; `avals` are its inputs, without the pack."""

    graph: RelativeGraph
    packer: Packer
    avals: Sequence[jax.ShapeDtypeStruct]
    compiled: jax.stages.Compiled


class Spmd:
    """Runs programs on several devices at once, and keeps what it compiled.

    Args:
        devices: by position; over several processes, those of all of them.
        engine: see `Engine`.
        custom_ops: what `Custom` may run; by default the ids that Burn itself sends.
        products: precision of f32 products and convolutions.
        seed: of the random numbers; the device at position p draws what a session with the seed `seed + p` draws.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        engine: Engine = Engine.shard_map,
        custom_ops: CustomOpRegistry | None = None,
        products: jax.lax.Precision = jax.lax.Precision.HIGHEST,
        seed: int = 0,
    ) -> None:
        self.devices: Final = tuple(devices)
        self.engine: Final = engine
        self.mesh: Final = Mesh(np.array(self.devices), (AXIS,))
        self.by_device: Final = NamedSharding(self.mesh, PartitionSpec(AXIS))
        self.replicated: Final = NamedSharding(self.mesh, PartitionSpec())
        self.num_compiles = 0
        self._custom_ops = custom_ops or default_custom_ops()
        self._products = products
        self._random = RandomState(seed)
        self._symbols = SymbolTable()
        self._executables: dict[Any, _Executable] = {}
        self._lock = threading.Lock()

    def run(
        self, program: Sequence[Op] | Sequence[Sequence[Op]], per_device_inputs: Mapping[int, Operand]
    ) -> dict[int, jax.Array]:
        """Run a recorded stream on every device, each with its row of the inputs.

        Args:
            program: operations, or one list per device of operations that differ in the sets of `AllReduce` alone.
            per_device_inputs: by tensor id. A tensor that the program uses for the last time is donated.

        Returns:
            What survives, by tensor id: arrays (devices, ...), each row on its device.

        Raises:
            StreamError: a device is not in the set of its own `AllReduce`, or the sets of a group differ.
            ShapeError, DTypeError, UnknownHandle: an input is not what the program declares, or is not there.
            OperationError: an operation failed.
        """
        num_devices = len(self.devices)
        streams = _streams(program, num_devices)
        partitions = tuple(_partitions(streams, num_devices))
        plan = _plan(streams[0], self._symbols)
        found = self._get((plan.key, partitions), lambda: self._compile(plan, partitions))
        given = {id: self._placed(per_device_inputs[id]) for id in plan.part.bindings.ids if id in per_device_inputs}
        return self._call(found, plan, given)

    def run_sharded(self, program: Sequence[Op], inputs: Mapping[int, jax.Array]) -> dict[int, jax.Array]:
        """Run a recorded stream as if on one device, on arrays that are spread over all of them; XLA splits the work.

        Args:
            program: operations without an `AllReduce` of several devices.
            inputs: by tensor id, in the declared shapes, placed with `shard` or `replicate`.

        Returns:
            What survives, by tensor id, whole on each device.

        Raises:
            ShapeError, DTypeError, UnknownHandle, OperationError: as `run`.
        """
        plan = _plan(program, self._symbols)
        shardings = {id: cast("NamedSharding", a.sharding) for id, a in inputs.items() if id in plan.part.numbers}
        specs = frozenset((plan.part.numbers[id], sharding.spec) for id, sharding in shardings.items())
        found = self._get((plan.key, specs), lambda: self._compile_sharded(plan, shardings))
        return self._call(found, plan, inputs)

    def shard(self, array: np.ndarray | jax.Array) -> jax.Array:
        """`array` cut into equal parts along its first axis, one on each device.

        Raises:
            ShapeError: the axis does not divide by the number of devices.
        """
        if not array.ndim or array.shape[0] % len(self.devices):
            raise ShapeError(f"expected a first axis that {len(self.devices)} devices share, got {array.shape}")
        with jax.enable_x64(True):
            return jax.device_put(array, self.by_device)

    def replicate(self, array: np.ndarray | jax.Array) -> jax.Array:
        """`array` whole on each device."""
        with jax.enable_x64(True):
            return jax.device_put(array, self.replicated)

    # ---- inputs

    def _placed(self, operand: Operand) -> jax.Array:
        """An input with a row on each device; what is there already is not moved."""
        with jax.enable_x64(True):
            if isinstance(operand, np.ndarray):
                return jax.make_array_from_process_local_data(self.by_device, operand)
            if not isinstance(operand, jax.Array):
                rows = [array[None] for array in operand]
                shape = (len(self.devices), *rows[0].shape[1:])
                return jax.make_array_from_single_device_arrays(shape, self.by_device, rows)
            return operand if operand.sharding == self.by_device else jax.device_put(operand, self.by_device)

    # ---- programs

    def _get(self, key: Any, compile: Callable[[], _Executable]) -> _Executable:
        with self._lock:
            found = self._executables.get(key)
            if found is None:
                if len(self._executables) >= MAX_PROGRAMS:
                    self._executables.pop(next(iter(self._executables)))
                with precision(self._products), jax.enable_x64(True):
                    found = self._executables[key] = compile()
                self.num_compiles += 1
            return found

    def _function(self, plan: _Plan) -> tuple[RelativeGraph, Packer, Callable[..., tuple[jax.Array, ...]]]:
        """The program of one device; every slice start is an argument, so that one program serves them all."""
        graph = build_graph(*plan.part.key, [plan.part.numbers[i] for i in plan.outputs])
        starts = plan.part.bindings.starts
        packer = Packer(graph.scalars, len(starts), graph.num_random > 0)
        return graph, packer, program_function(graph, packer, starts, (True,) * len(starts), self._custom_ops)

    def _compile(self, plan: _Plan, partitions: tuple[Partition, ...]) -> _Executable:
        graph, packer, function = self._function(plan)
        platform = self.devices[0].platform
        num_inputs = len(graph.inputs)

        def of_one_device(*arguments: jax.Array) -> tuple[jax.Array, ...]:
            words = [_seeded(pack, graph) for pack in arguments[num_inputs:]]
            with device_axis(AXIS, platform, partitions):
                return function(*arguments[:num_inputs], *words)

        tensors = graph.tensors()
        rows = [abstract_value(tensors[value], None) for value in graph.inputs]
        shapes = [(len(self.devices), *row.shape) for row in rows]
        avals = [
            jax.ShapeDtypeStruct(shape, row.dtype, sharding=self.by_device)
            for shape, row in zip(shapes, rows, strict=True)
        ]
        pack = _pack_aval(packer, self.replicated)
        donated = usable_donations(graph, _ended_inputs(graph, plan))
        if self.engine is Engine.pmap and num_inputs:  # jax.pmap refuses a function without rows
            axes = (0,) * num_inputs + (None,) * len(pack)
            mapped = jax.pmap(of_one_device, AXIS, in_axes=axes, devices=self.devices, donate_argnums=donated)
        else:
            specs = (PartitionSpec(AXIS),) * num_inputs + (PartitionSpec(),) * len(pack)

            def of_a_block(*blocks: jax.Array) -> tuple[jax.Array, ...]:
                given = [jax.lax.squeeze(block, (0,)) for block in blocks[:num_inputs]]
                return tuple(out[None] for out in of_one_device(*given, *blocks[num_inputs:]))

            # check_vma refuses groups smaller than the axis
            whole = jax.shard_map(
                of_a_block, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(AXIS), check_vma=False
            )
            mapped = jax.jit(whole, donate_argnums=donated, keep_unused=True)
        return _Executable(graph, packer, avals, mapped.lower(*avals, *pack).compile())

    def _compile_sharded(self, plan: _Plan, shardings: Mapping[int, NamedSharding]) -> _Executable:
        graph, packer, function = self._function(plan)
        tensors = graph.tensors()
        placed = [shardings.get(plan.part.bindings.ids[value], self.replicated) for value in graph.inputs]
        avals = [abstract_value(tensors[v], sharding) for v, sharding in zip(graph.inputs, placed, strict=True)]
        whole = [place for place in _ended_inputs(graph, plan) if placed[place].is_fully_replicated]
        jitted = jax.jit(
            function, donate_argnums=usable_donations(graph, whole), keep_unused=True, out_shardings=self.replicated
        )
        compiled = jitted.lower(*avals, *_pack_aval(packer, self.replicated)).compile()
        return _Executable(graph, packer, avals, compiled)

    def _call(self, found: _Executable, plan: _Plan, inputs: Mapping[int, jax.Array]) -> dict[int, jax.Array]:
        graph, packer = found.graph, found.packer
        bound = plan.part.bindings
        given: list[Any] = []
        for value, aval in zip(graph.inputs, found.avals, strict=True):
            array = inputs.get(bound.ids[value])
            if array is None:
                raise UnknownHandle(f"tensor {bound.ids[value]}: the program needs it, and it is not among the inputs")
            if (array.shape, array.dtype) != (aval.shape, aval.dtype):
                raise ShapeError(
                    f"tensor {bound.ids[value]}: expected {aval.dtype}{list(aval.shape)}, "
                    f"got {array.dtype}{list(array.shape)}"
                )
            given.append(array)
        if packer.num_words:
            key = self._random.take(graph.num_random) if graph.num_random else ()
            given.append(packer.pack(bound.scalars, bound.starts, key))
        results = launch(found.compiled, given)
        return dict(zip(plan.outputs, results, strict=True))


def launch(compiled: jax.stages.Compiled, arguments: Sequence[Any]) -> Any:
    """Run a program of several devices, one at a time.

    Two threads that each start one could reach the devices in different orders, and each would wait for the other. On
    CPU the devices share a pool of threads as well, so that two programs under way can hold all of it and wait for
    each other, until XLA aborts the process: there the next one starts when this one has ended.
    """
    with _LAUNCH:
        results = compiled(*arguments)
        if any(d.platform == "cpu" for array in jax.tree.leaves(results)[:1] for d in array.devices()):
            jax.block_until_ready(results)
    return results


def run_spmd(
    program: Sequence[Op] | Sequence[Sequence[Op]],
    per_device_inputs: Mapping[int, Operand],
    devices: Sequence[Device],
    *,
    engine: Engine = Engine.shard_map,
) -> dict[int, jax.Array]:
    """Run a recorded stream on `devices` at once: `Spmd.run` on a runner that is kept for the next call."""
    return _runner(tuple(devices), engine).run(program, per_device_inputs)


@lru_cache(maxsize=16)
def _runner(devices: tuple[Device, ...], engine: Engine) -> Spmd:
    return Spmd(devices, engine=engine)


def group_of(op: AllReduce, position: int | None, num_devices: int) -> tuple[int, ...]:
    """The positions that take part in `op`, sorted, as the device at `position` sees it; None: it has no position.

    Raises:
        StreamError: one occurs twice or is not there, or the device is not among them.
        DTypeError: the tensor has no floats.
    """
    group = tuple(sorted(id.index_id for id in op.device_ids))
    if not group or len(set(group)) < len(group):
        raise StreamError(f"AllReduce.device_ids: expected one or more distinct devices, got {list(group)}")
    if group[-1] >= num_devices:
        raise StreamError(f"AllReduce.device_ids: expected positions below {num_devices}, got {list(group)}")
    if position is not None and position not in group:
        raise StreamError(f"AllReduce.device_ids: expected device {position} itself among them, got {list(group)}")
    if not op.tensor.dtype.is_float or op.tensor.dtype.is_quantized:
        raise DTypeError(f"AllReduce.tensor: expected floats, got {op.tensor}")
    return group


def _streams(program: Sequence[Op] | Sequence[Sequence[Op]], num_devices: int) -> list[Sequence[Op]]:
    """The stream of each device, or the one that all share."""
    if not program or isinstance(program[0], Op):
        return [cast("Sequence[Op]", program)]
    streams = list(cast("Sequence[Sequence[Op]]", program))
    if len(streams) != num_devices:
        raise StreamError(f"run_spmd: expected one stream for each of {num_devices} devices, got {len(streams)}")
    forms = [[_without_set(op) for op in stream] for stream in streams]
    for position, form in enumerate(forms):
        if form != forms[0]:
            pairs = enumerate(zip(form, forms[0], strict=False))
            place = next((n for n, (mine, first) in pairs if mine != first), min(len(form), len(forms[0])))
            raise StreamError(
                f"run_spmd: the streams of devices 0 and {position} differ at operation {place}; expected streams that "
                "differ in AllReduce.device_ids alone: give each device a recorder of a Rendezvous instead"
            )
    return streams


def _without_set(op: Op) -> Op:
    return AllReduce(op.tensor, op.out, op.op, ()) if isinstance(op, AllReduce) else op


def _partitions(streams: Sequence[Sequence[Op]], num_devices: int) -> list[Partition]:
    """The groups of each `AllReduce` of the streams, in order."""
    reduces = [[op for op in stream if isinstance(op, AllReduce)] for stream in streams]
    found: list[Partition] = []
    for number, ops in enumerate(zip(*reduces, strict=True)):
        each = ops * num_devices if len(ops) == 1 else ops
        groups = [group_of(op, position, num_devices) for position, op in enumerate(each[:num_devices])]
        for position, group in enumerate(groups):
            if odd := [other for other in group if groups[other] != group]:
                raise StreamError(
                    f"AllReduce {number} of the program: device {position} reduces over {list(group)}, "
                    f"device {odd[0]} over {list(groups[odd[0]])}"
                )
        found.append(tuple(dict.fromkeys(groups)))
    return found


def _ended_inputs(graph: RelativeGraph, plan: _Plan) -> list[int]:
    """The places of the inputs that are used for the last time."""
    return [n for n, value in enumerate(graph.inputs) if plan.part.bindings.ids[value] in plan.ended]


def _pack_aval(packer: Packer, sharding: NamedSharding) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct((packer.num_words,), jnp.uint32, sharding=sharding)] if packer.num_words else []


def _seeded(pack: jax.Array, graph: RelativeGraph) -> jax.Array:
    """The pack with this device's position added to the seed; see `RandomState.take` for its last four words."""
    if not graph.num_random:
        return pack
    low = pack.shape[0] - 4
    return pack.at[low].add(jax.lax.axis_index(AXIS).astype(jnp.uint32))
