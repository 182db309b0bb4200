"""What the control kinds are to a program."""

from typing import Final

from ir.op import Op
from ir.ops.control import Custom, Drop, Init

NO_PROGRAM: Final[frozenset[type[Op]]] = frozenset({Init, Drop, Custom})
"""Kinds without a lowering here.

`Init` and `Drop` are no part of a program: `stream.split_drops` takes them out, since they speak of handles alone.
`Custom` means what the session's `CustomOpRegistry` says, so the interpreter asks that.
"""
