"""What the control kinds are to a program."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from ir.errors import StreamError
from ir.op import Op
from ir.ops.control import AllReduce, Custom, Drop, Init, ReduceOperation, SyncCollective
from jax_backend.lowering import lower
from jax_backend.ops._shared import widen_half

NO_PROGRAM: Final[frozenset[type[Op]]] = frozenset({Init, Drop, Custom})
"""Kinds without a lowering here.

`Init` and `Drop` are no part of a program: `stream.split_drops` takes them out, since they speak of handles alone.
`Custom` means what the session's `CustomOpRegistry` says, so the interpreter asks that.
"""

Partition: TypeAlias = tuple[tuple[int, ...], ...]
"""The positions on an axis, by the group that each reduces in."""


class DeviceAxis(NamedTuple):
    """The devices that run a program at once, as an axis to reduce over.

    `partitions` gives the groups of each `AllReduce` of the program, in order.
    """

    name: str
    platform: str
    partitions: Iterator[Partition]


_axis: ContextVar[DeviceAxis | None] = ContextVar("axis", default=None)


@contextmanager
def device_axis(name: str, platform: str, partitions: Sequence[Partition]) -> Generator[None]:
    """Trace a program that runs on the devices of the axis `name` at once."""
    token = _axis.set(DeviceAxis(name, platform, iter(partitions)))
    try:
        yield
    finally:
        _axis.reset(token)


def reduce_over(x: jax.Array, how: ReduceOperation, axis: str, partition: Partition, platform: str) -> jax.Array:
    """`x` joined with the `x` of the other devices of its group, equal bits on each.

    Halves are summed in float32 on CPU, whose reduction would round at each step.
    """
    wide = widen_half(x) if platform == "cpu" else x
    groups = None if len(partition) == 1 else [list(group) for group in partition]
    total = lax.psum(wide, axis, axis_index_groups=groups)
    if how is ReduceOperation.Mean:
        total = total / _group_size(partition, axis).astype(total.dtype)
    return total.astype(x.dtype)


def _group_size(partition: Partition, axis: str) -> jax.Array:
    """How many devices the group of this device has."""
    if len({len(group) for group in partition}) == 1:
        return jnp.asarray(len(partition[0]), jnp.int32)
    sizes = {position: len(group) for group in partition for position in group}
    return jnp.asarray([sizes[position] for position in sorted(sizes)], jnp.int32)[lax.axis_index(axis)]


@lower(AllReduce)
def all_reduce(op: AllReduce, tensor: jax.Array) -> jax.Array:
    """The tensor itself where one device takes part; among several, what `device_axis` says."""
    axis = _axis.get()
    if axis is not None:
        return reduce_over(tensor, op.op, axis.name, next(axis.partitions), axis.platform)
    if len(op.device_ids) > 1:
        raise StreamError(
            f"AllReduce.device_ids: expected one device, got {len(op.device_ids)}: this program runs on one alone; "
            "use jax_backend.collective.run_spmd, or recorders that share a Rendezvous"
        )
    return tensor


@lower(SyncCollective)
def sync_collective(op: SyncCollective) -> tuple[()]:
    """Nothing: inside a program each use of a result waits for it already."""
    return ()
