"""All-reduce between recorders, one per device.

The k-th `AllReduce` over a set of devices in one stream meets the k-th over the same set in the others:

    rendezvous = Rendezvous(jax.devices()[:2])
    recorders = [Recorder(member=rendezvous.member(position)) for position in range(2)]

What a recorder gets is a ticket. Once the last one has come, the collective is complete; it starts when somebody
needs its result, together with the others over the same devices that are complete by then: the gradients of a step go
in one program. Who needs a result earlier waits, up to a timeout. Nobody else waits. In one thread, therefore, record
the `AllReduce` of every device before the result is read on any.

Promise: parts that do not fit, or do not come, end in an error for each participant, and none hangs; the arrays do
not pass through the host; each device gets the same bits.
"""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ir.errors import IrError, StreamError
from ir.ops.control import AllReduce, ReduceOperation
from ir.tensor import READ_WRITE
from jax_backend.collective import AXIS, group_of, launch
from jax_backend.handles import HandleTable
from jax_backend.ops.control import reduce_over
from jax_backend.types import Device

TIMEOUT_S: Final = 300.0
MAX_REDUCERS: Final = 1024
"""Compiled collectives that are kept: one per group and sequence of shapes, dtypes and reductions."""
MAX_JOINT: Final = 128
"""Collectives that start together at most."""
JOINT_BYTES: Final = 32 << 20
"""Complete collectives of this size on each device start without being asked for: more would not get faster."""
GRACE_S: Final = 0.002
"""How long somebody who waited lets the thread that came last bring what follows."""

Group = tuple[int, ...]


class CollectiveFailure(IrError):
    """A participant did not come, or brought what does not fit."""


class _Part(NamedTuple):
    """What a device brings; `is_last_use` allows its buffer to take the result."""

    how: ReduceOperation
    array: jax.Array
    is_last_use: bool

    def __str__(self) -> str:
        return f"{self.how.value} of {self.array.dtype}{list(self.array.shape)}"


@dataclass
class _Meeting:
    """One collective: call `number`, from 0, over `group`."""

    group: Group
    number: int
    parts: dict[int, _Part] = field(default_factory=dict[int, _Part])
    joined: set[int] = field(default_factory=set[int])
    completed_by: int | None = None
    results: dict[int, jax.Array] | None = None
    failure: CollectiveFailure | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def is_complete(self) -> bool:
        """Every part is there: nobody has to be waited for."""
        return self.completed_by is not None

    @property
    def is_over(self) -> bool:
        return self.results is not None or self.failure is not None

    def add(self, position: int, part: _Part | IrError) -> None:
        """Take the part of a device, or the reason why it has none."""
        self.joined.add(position)
        if isinstance(part, IrError):
            self.fail(f"device {position} has no tensor to bring: {part}")
            return
        for other, theirs in self.parts.items():
            if (theirs.how, theirs.array.shape, theirs.array.dtype) != (part.how, part.array.shape, part.array.dtype):
                self.fail(f"device {other} brought {theirs}, device {position} brought {part}; expected equal parts")
                return
        self.parts[position] = part

    def fail(self, why: str) -> None:
        """End it; the first reason stands."""
        if not self.is_over:
            waited_s = time.monotonic() - self.began
            self.failure = CollectiveFailure(
                f"AllReduce over devices {list(self.group)}, call {self.number}: {why} "
                f"({waited_s:.1f} s after the first device came)"
            )
        self.parts.clear()


@dataclass
class _Scope:
    """The collectives of one client over one set of devices."""

    members: dict[int, "Member"] = field(default_factory=dict[int, "Member"])
    meetings: dict[int, _Meeting] = field(default_factory=dict[int, _Meeting])
    complete: list[_Meeting] = field(default_factory=list[_Meeting])
    complete_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """What is complete should start."""
        return len(self.complete) >= MAX_JOINT or self.complete_bytes >= JOINT_BYTES

    def take_complete(self) -> list[_Meeting]:
        """What is complete, to start it."""
        taken, self.complete, self.complete_bytes = self.complete, [], 0
        return taken


class Rendezvous:
    """Where the recorders of several devices meet. Any thread may call.

    Args:
        devices: by position, as `AllReduce` names them.
        timeout_s: how long a result is waited for.
    """

    def __init__(self, devices: Sequence[Device], *, timeout_s: float = TIMEOUT_S) -> None:
        self.devices: Final = tuple(devices)
        self.timeout_s: Final = timeout_s
        self.changed: Final = threading.Condition()
        self._scopes: dict[tuple[Hashable, Group], _Scope] = {}
        self._reducers: dict[Hashable, _Reducer] = {}
        self._seen: dict[Hashable, None] = {}
        self._compiling = threading.Lock()

    def member(self, position: int, client: Hashable = None) -> "Member":
        """A participant: the device at `position`, for a client who meets only itself.

        Raises:
            StreamError: there is no such device.
        """
        if not 0 <= position < len(self.devices):
            raise StreamError(f"Rendezvous.member: expected a position below {len(self.devices)}, got {position}")
        return Member(self, position, client)

    def join(self, member: "Member", group: Group, number: int, part: _Part | IrError) -> "Ticket":
        """Bring a part to the collective `number` over `group`."""
        with self.changed:
            scope = self._scopes.setdefault((member.client, group), _Scope())
            holder = scope.members.setdefault(member.position, member)
            if holder is not member:
                raise StreamError(
                    f"AllReduce over devices {list(group)}: device {member.position} takes part through another "
                    "session of this client already; expected one session per device, since calls meet by order alone"
                )
            meeting = scope.meetings.setdefault(number, _Meeting(group, number))
            for position, other in scope.members.items():
                if position not in meeting.joined and other.num_calls(group) > number:
                    meeting.fail(f"device {position} is at its call {other.num_calls(group)} already")
            meeting.add(member.position, part)
            if len(meeting.joined) == len(group):
                del scope.meetings[number]
                if meeting.failure is None:
                    meeting.completed_by = threading.get_ident()
                    scope.complete.append(meeting)
                    scope.complete_bytes += meeting.parts[member.position].array.nbytes
            if meeting.is_over or meeting.is_complete:
                self.changed.notify_all()
            is_full = meeting.is_complete and scope.is_full
        if is_full:
            self.start(scope)
        return Ticket(self, scope, meeting, member)

    def start(self, scope: _Scope) -> None:
        """Start every collective that is complete; waits for devices on CPU alone."""
        with self.changed:
            meetings = scope.take_complete()
        if not meetings:
            return
        try:
            for key, joint in self._joint(meetings):
                self._reduce(key, joint)
        finally:  # an interrupt leaves nobody waiting
            with self.changed:
                for meeting in meetings:
                    if not meeting.is_over:
                        meeting.fail("its start was interrupted")
                self.changed.notify_all()

    def leave(self, member: "Member", why: str) -> None:
        """End the collectives that wait for a member, which will not come."""
        with self.changed:
            for key, scope in list(self._scopes.items()):
                if scope.members.get(member.position) is not member:
                    continue
                del scope.members[member.position]
                for meeting in scope.meetings.values():
                    if member.position not in meeting.joined:
                        meeting.fail(f"device {member.position} left: {why}")
                if not scope.members:
                    del self._scopes[key]
            self.changed.notify_all()

    def _joint(self, meetings: list[_Meeting]) -> list[tuple[Hashable, list[_Meeting]]]:
        """All in one program, if this sequence has come before; else one by one.

        What is complete together can depend on timing; a sequence that does not come again is not worth a program.
        """
        forms = [_form(meeting) for meeting in meetings]
        key = tuple(forms)
        if len(forms) == 1 or self._has_come(key):
            return [(key, meetings)]
        return [((form,), [meeting]) for form, meeting in zip(forms, meetings, strict=True)]

    def _has_come(self, key: Hashable) -> bool:
        """This is not the first time."""
        with self.changed:
            if key in self._seen:
                return True
            if len(self._seen) >= MAX_REDUCERS:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = None
            return False

    def _reduce(self, key: Hashable, meetings: list[_Meeting]) -> None:
        """Run one program for collectives over the same devices."""
        group = meetings[0].group
        try:
            rows = [[meeting.parts[position] for position in group] for meeting in meetings]
            results = self._reducer(key, group, rows)(rows)
        except Exception as reason:  # the compiler or a device
            with self.changed:
                for meeting in meetings:
                    meeting.fail(f"{type(reason).__name__}: {reason}")
                self.changed.notify_all()
        else:
            with self.changed:
                for meeting, shards in zip(meetings, results, strict=True):
                    meeting.results = dict(zip(group, shards, strict=True))
                    meeting.parts.clear()
                self.changed.notify_all()

    def _reducer(self, key: Hashable, group: Group, rows: Sequence[Sequence[_Part]]) -> "_Reducer":
        found = self._reducers.get(key)
        if found is None:
            with self._compiling:
                found = self._reducers.get(key)
                if found is None:
                    if len(self._reducers) >= MAX_REDUCERS:
                        self._reducers.pop(next(iter(self._reducers)))
                    devices = [self.devices[position] for position in group]
                    found = self._reducers[key] = _Reducer(devices, rows)
        return found


def _form(meeting: _Meeting) -> Hashable:
    """What decides the code of a collective."""
    parts = [meeting.parts[position] for position in meeting.group]
    first = parts[0]
    return meeting.group, first.how, first.array.shape, first.array.dtype, _donates(parts)


def _donates(parts: Sequence[_Part]) -> bool:
    return all(part.is_last_use for part in parts)


class Ticket:
    """A result that is there once every participant has come."""

    def __init__(self, rendezvous: Rendezvous, scope: _Scope, meeting: _Meeting, member: "Member") -> None:
        self._rendezvous = rendezvous
        self._scope = scope
        self._meeting = meeting
        self._member = member

    @property
    def is_ready(self) -> bool:
        """`result` does not wait for other participants."""
        return self._meeting.is_over or self._meeting.is_complete

    def result(self) -> jax.Array:
        """The array on the device of this participant; waits for the others, not for the devices.

        Raises:
            CollectiveFailure: one did not come in time, or what they brought does not fit.
        """
        meeting, member = self._meeting, self._member
        if not meeting.is_over:
            self._complete()
        if meeting.failure is not None:
            raise meeting.failure
        assert meeting.results is not None
        return meeting.results[member.position]

    def _complete(self) -> None:
        """Wait for the others, and start it unless another thread does."""
        meeting, member = self._meeting, self._member
        changed, timeout_s = self._rendezvous.changed, self._rendezvous.timeout_s
        with changed:
            changed.wait_for(lambda: self.is_ready or member.gave_up, timeout_s)
            if not self.is_ready and member.gave_up:
                raise CollectiveFailure(f"AllReduce over devices {list(meeting.group)}: {member.gave_up}")
            if not self.is_ready:
                brought = ", ".join(f"device {p} brought {part}" for p, part in sorted(meeting.parts.items()))
                missing = [p for p in meeting.group if p not in meeting.joined]
                meeting.fail(
                    f"waited {timeout_s:g} s in vain for devices {missing}; {brought}. Each device of the set has to "
                    "record it; a client with one thread sends it when that device is read"
                )
                changed.notify_all()
            if not meeting.is_over and meeting.completed_by != threading.get_ident():
                changed.wait_for(lambda: meeting.is_over, GRACE_S)
        if not meeting.is_over:
            self._rendezvous.start(self._scope)
            with changed:  # another thread may be starting it
                changed.wait_for(lambda: meeting.is_over)


class Member:
    """One device in a rendezvous, on behalf of one recorder. `give_up` may be called from any thread."""

    def __init__(self, rendezvous: Rendezvous, position: int, client: Hashable) -> None:
        self.position: Final = position
        self.client: Final = client
        self.device: Final = rendezvous.devices[position]
        self.gave_up = ""
        self._rendezvous = rendezvous
        self._calls: dict[Group, int] = {}

    def num_calls(self, group: Group) -> int:
        """How many collectives over `group` it has joined."""
        return self._calls.get(group, 0)

    def join(self, group: Group, part: _Part | IrError) -> Ticket:
        """Bring a part to the next collective over `group`.

        Raises:
            StreamError: another member has this position.
        """
        number = self.num_calls(group)
        ticket = self._rendezvous.join(self, group, number, part)
        self._calls[group] = number + 1
        return ticket

    def group_of(self, op: AllReduce) -> Group:
        """The positions that take part in `op`.

        Raises:
            StreamError, DTypeError: as `collective.group_of`.
        """
        return group_of(op, self.position, len(self._rendezvous.devices))

    def give_up(self, why: str) -> None:
        """Wait for nobody any more, now and later; what was brought stays for the others."""
        with self._rendezvous.changed:
            self.gave_up = why
            self._rendezvous.changed.notify_all()

    def close(self) -> None:
        """Take part no more: who waits for it is told."""
        self.give_up("the session is over")
        self._rendezvous.leave(self, "its session is over")
        self._calls.clear()


def all_reduce(op: AllReduce, member: Member | None, handles: HandleTable) -> None:
    """Bring the input of `op`, which is on the device, and let its output name the result, which may be pending.

    Raises:
        StreamError, DTypeError: the set makes no sense for this device; none of the others is told.
        UnknownHandle, IrError: there is no input; the others are told.
    """
    source, out = op.tensor.id.value, op.out.id.value
    group = member.group_of(op) if member is not None else group_of(op, None, _ANY_POSITION)
    if len(group) == 1:
        handles.array(source)
        handles.alias(out, source)
        return
    if member is None:
        raise StreamError(
            f"AllReduce.device_ids: expected one device, got {list(group)}: this recorder is in no Rendezvous; "
            "make each with Recorder(member=rendezvous.member(position))"
        )
    try:
        array = handles.array(source)
        handles.reserve(array.nbytes)
        declared = op.tensor.shape.dims
        if array.shape != declared:
            raise StreamError(f"AllReduce.tensor: declared shape {list(declared)}, got {list(array.shape)}")
    except IrError as reason:
        member.join(group, reason)
        raise
    buffer = handles.get(source)
    is_last_use = op.tensor.status is READ_WRITE and buffer is not None and buffer.owners == 1
    ticket = member.join(group, _Part(op.op, array, is_last_use))
    if op.tensor.status is READ_WRITE:
        handles.free(source)
    handles.put_pending(out, ticket)


_ANY_POSITION: Final = 1 << 16
"""Positions are u16."""


class _Reducer:
    """A compiled program of collectives over the same devices: the parts of each as one array, cut along an axis.

    Args:
        devices: of the group, in order.
        rows: per collective, a part per device; examples of what the program is called with.
    """

    def __init__(self, devices: Sequence[Device], rows: Sequence[Sequence[_Part]]) -> None:
        firsts = [parts[0] for parts in rows]
        self._sharding = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))
        dims = [first.array.shape or (1,) for first in firsts]
        self._shapes = [(len(devices) * shape[0], *shape[1:]) for shape in dims]
        partition, platform = (tuple(range(len(devices))),), devices[0].platform

        def of_one_device(*arrays: jax.Array) -> list[jax.Array]:
            pairs = zip(arrays, firsts, strict=True)
            return [reduce_over(x, first.how, AXIS, partition, platform) for x, first in pairs]

        whole: Callable[..., list[jax.Array]] = jax.shard_map(
            of_one_device,
            mesh=self._sharding.mesh,
            in_specs=PartitionSpec(AXIS),
            out_specs=PartitionSpec(AXIS),
            check_vma=False,
        )
        donated = tuple([place for place, parts in enumerate(rows) if _donates(parts)])
        with jax.enable_x64(True):
            avals = [
                jax.ShapeDtypeStruct(shape, first.array.dtype, sharding=self._sharding)
                for shape, first in zip(self._shapes, firsts, strict=True)
            ]
            self._compiled = jax.jit(whole, donate_argnums=donated).lower(*avals).compile()

    def __call__(self, rows: Sequence[Sequence[_Part]]) -> list[list[jax.Array]]:
        """The results, per collective one on each device in their order; waits for the devices on CPU alone."""
        joined: list[jax.Array] = []
        for shape, parts in zip(self._shapes, rows, strict=True):
            arrays = [part.array if part.array.shape else part.array.reshape(1) for part in parts]
            joined.append(jax.make_array_from_single_device_arrays(shape, self._sharding, arrays))
        made: list[list[jax.Array]] = []
        for result, parts in zip(launch(self._compiled, joined), rows, strict=True):
            shards = [result.addressable_data(n) for n in range(len(parts))]
            made.append(shards if parts[0].array.shape else [shard.reshape(()) for shard in shards])
        return made
