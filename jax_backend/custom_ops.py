"""Custom operations: what the ids of `Custom` mean. The registry is an object that is handed in, never a global."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ir.errors import UnsupportedOp
from ir.ops.control import Custom

Handler: TypeAlias = Callable[..., Any]


class CustomOpRegistry:
    """Handlers by id. A handler is a lowering: `(op, inputs) -> array or tuple of arrays`, pure and traceable.

    `op.scalars` are static, `inputs` is a tuple of arrays, one output is due per tensor of `op.outputs`.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def register(self, id: str, handler: Handler) -> None:
        """Let `handler` run the operations with this `id`.

        Raises:
            ValueError: the id is taken.
        """
        if id in self._handlers:
            raise ValueError(f"custom op {id!r} has a handler already")
        self._handlers[id] = handler

    def handler(self, op: Custom) -> Handler:
        """The handler of `op`.

        Raises:
            UnsupportedOp: its id is unknown.
        """
        try:
            return self._handlers[op.id]
        except KeyError:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise UnsupportedOp(f"Custom.id: no handler for {op.id!r}; known ids: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)
