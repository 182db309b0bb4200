"""Tensor ids and the arrays behind them.

Several ids may name one buffer (aliases); a buffer may be donated only while one id names it. An id of a failed
operation names the reason instead.

Promise: a ReadWrite use ends the id; a buffer is donated only if no alias refers to it; a failed id never reads.
"""

import jax

from ir.errors import IrError, UnknownHandle


class Buffer:
    """An array and the number of ids that name it; `failure` replaces an array that was never made."""

    __slots__ = ("array", "failure", "owners")

    def __init__(self, array: jax.Array | None, failure: IrError | None = None) -> None:
        self.array = array
        self.failure = failure
        self.owners = 0


class HandleTable:
    """The live ids of one session."""

    def __init__(self) -> None:
        self._buffers: dict[int, Buffer] = {}
        self.num_failed = 0

    def __len__(self) -> int:
        return len(self._buffers)

    def __contains__(self, id: int) -> bool:
        return id in self._buffers

    def ids(self) -> list[int]:
        """Every live id."""
        return list(self._buffers)

    @property
    def size_bytes(self) -> int:
        """Bytes of the live buffers, each counted once."""
        unique = {id(b): b.array for b in self._buffers.values() if b.array is not None}
        return sum(array.nbytes for array in unique.values())

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
        if buffer.array is None:
            assert buffer.failure is not None
            raise buffer.failure
        return buffer.array

    def put(self, id: int, array: jax.Array) -> None:
        """Let `id` name `array`, whatever it named before."""
        self._insert(id, Buffer(array))

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

    def clear(self) -> None:
        """End every id."""
        self._buffers.clear()
        self.num_failed = 0

    def _insert(self, id: int, buffer: Buffer) -> None:
        buffer.owners += 1
        self.free(id)
        self._buffers[id] = buffer
