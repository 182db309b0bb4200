"""Tensor ids and the arrays behind them.

Several ids may name one buffer (aliases); a buffer may be donated only while one id names it. An id of a failed
operation names the reason instead.

Promise: a ReadWrite use ends the id; a buffer is donated only if nothing else refers to it; a failed id never reads.
"""

import math
from collections.abc import Iterable, Set
from typing import Protocol

import jax

from ir.errors import IrError, UnknownHandle
from jax_backend.launcher import Launched, Made


class Pending(Protocol):
    """An array that may not be there yet: others have a part in it, or the call that makes it waits for its turn."""

    def result(self) -> jax.Array:
        """The array, waited for.

        Raises:
            IrError: there is none.
        """
        ...


class Buffer:
    """An array and the number of ids that name it; `failure` or `pending` stand in place of one that is not there."""

    __slots__ = ("array", "failure", "owners", "pending")

    def __init__(self, array: jax.Array | None, failure: IrError | None = None, pending: Pending | None = None) -> None:
        self.array = array
        self.failure = failure
        self.pending = pending
        self.owners = 0


class MemoryLimit(IrError):
    """A session would hold more bytes than it may."""


class HandleTable:
    """The live ids of one session.

    Args:
        max_bytes: what `reserve` grants; by default everything.
    """

    def __init__(self, max_bytes: float = math.inf) -> None:
        self._buffers: dict[int, Buffer] = {}
        self._max_bytes = max_bytes
        self._reserved = 0
        self.num_failed = 0
        self._pending: set[Buffer] = set()

    def __len__(self) -> int:
        return len(self._buffers)

    def __contains__(self, id: int) -> bool:
        return id in self._buffers

    @property
    def has_pending(self) -> bool:
        """Some id may name an array in which others have a part: `settle` before it is an input."""
        return bool(self._pending)

    def ids(self) -> list[int]:
        """Every live id."""
        return list(self._buffers)

    @property
    def size_bytes(self) -> int:
        """Bytes of the live buffers, each counted once. Other threads may ask."""
        unique = {id(b): _array_of(b) for b in tuple(self._buffers.values())}
        return sum(array.nbytes for array in unique.values() if array is not None)

    def get(self, id: int) -> Buffer | None:
        """The buffer of `id`, or None."""
        return self._buffers.get(id)

    def array(self, id: int) -> jax.Array:
        """The array of `id`.

        Raises:
            UnknownHandle: no live tensor has this id.
            IrError: the operation that should have made it failed; the reason itself is raised.
        """
        buffer = self._buffers.get(id)
        if buffer is None:
            raise UnknownHandle(f"no tensor has the id {id}: it was never made, or its last use is past")
        if buffer.pending is not None:
            self.settle((id,))
        if buffer.array is None:
            assert buffer.failure is not None
            raise buffer.failure
        return buffer.array

    def computed(self, id: int) -> jax.Array | None:
        """The array of `id`, if there is one; the device may still work on it."""
        buffer = self._buffers.get(id)
        return None if buffer is None else _array_of(buffer)

    def pinned(self, id: int) -> jax.Array:
        """The array of `id` for somebody else to hold: from now on its buffer is never donated.

        Raises:
            IrError: as `array`.
        """
        array = self.array(id)
        self._buffers[id].owners += 1
        return array

    def put(self, id: int, made: Made, *, pinned: bool = False) -> None:
        """Let `id` name an array, whatever it named before; `pinned`: somebody else holds it too."""
        buffer = Buffer(None, None, made) if isinstance(made, Launched) else Buffer(made)
        buffer.owners += pinned
        self._insert(id, buffer)

    def put_pending(self, id: int, pending: Pending) -> None:
        """Let `id` name an array in which others have a part."""
        buffer = Buffer(None, None, pending)
        self._insert(id, buffer)
        self._pending.add(buffer)

    def settle(self, ids: Iterable[int] | None = None) -> list[IrError]:
        """Wait for what is pending among `ids`, or for all of it, and return the reasons of what failed."""
        failures: list[IrError] = []
        for id in list(self._buffers) if ids is None else ids:
            buffer = self._buffers.get(id)
            if buffer is None or buffer.pending is None:
                continue
            try:
                buffer.array = buffer.pending.result()
            except IrError as reason:
                buffer.failure = reason
                self.num_failed += sum(other is buffer for other in self._buffers.values())
                failures.append(reason)
            buffer.pending = None
            self._pending.discard(buffer)
        return failures

    def settle_launched(self) -> list[IrError]:
        """As `settle`, for the results of calls: nobody else is waited for."""
        return self.settle([id for id, buffer in self._buffers.items() if isinstance(buffer.pending, Launched)])

    def reserve(self, num_bytes: int) -> None:
        """Count bytes that are about to be made. Freed bytes are counted out only when the limit comes near.

        Raises:
            MemoryLimit: they do not fit beside the live ones.
        """
        self._reserved += num_bytes
        if self._reserved > self._max_bytes:
            self.settle_launched()
            live = self.size_bytes
            self._reserved = live
            if live + num_bytes > self._max_bytes:
                raise MemoryLimit(
                    f"expected at most {self._max_bytes:,} bytes in one session, got {live:,} live ones and "
                    f"{num_bytes:,} more: drop tensors, or raise the limit of the server (--max-live-bytes)"
                )
            self._reserved += num_bytes

    def fail(self, id: int, reason: IrError) -> None:
        """Let `id` name a failure, until it is written again."""
        self._insert(id, Buffer(None, reason))
        self.num_failed += 1

    def alias(self, new: int, source: int) -> None:
        """Let `new` name the buffer of `source`, to be freed on its own.

        Raises:
            UnknownHandle: no live tensor has the id `source`.
        """
        buffer = self._buffers.get(source)
        if buffer is None:
            raise UnknownHandle(f"RegisterAlias: no tensor has the id {source}")
        self._insert(new, buffer)
        self.num_failed += buffer.failure is not None

    def free(self, id: int) -> None:
        """End `id`; an id that is gone already is no error."""
        if (buffer := self._buffers.pop(id, None)) is not None:
            buffer.owners -= 1
            self.num_failed -= buffer.failure is not None
            if not buffer.owners:
                self._pending.discard(buffer)

    def free_all(self, ids: Set[int]) -> None:
        """End those of `ids` that live."""
        for id in self._buffers.keys() & ids:
            self.free(id)

    def clear(self) -> None:
        """End every id."""
        self._buffers.clear()
        self.num_failed = 0
        self._pending.clear()

    def _insert(self, id: int, buffer: Buffer) -> None:
        buffer.owners += 1
        self.free(id)
        self._buffers[id] = buffer


def _array_of(buffer: Buffer) -> jax.Array | None:
    pending = buffer.pending
    return pending.array if isinstance(pending, Launched) else buffer.array
