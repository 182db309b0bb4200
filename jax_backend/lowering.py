"""The registry of lowerings: what each kind does, as a function on jax arrays.

A lowering is a pure function `(op, *operands) -> Array | tuple of arrays`. The operands come in the declared order of
the fields with a role: a tensor is an array (None where an optional one is absent, a tuple for a list), a traced
scalar is a 0-d array in its slot's dtype (None where absent), a lifted value is a tuple of 0-d arrays, ranges are a
tuple of starts (one per plain range: an int, or a 0-d int32 array where it is traced). A kind with `uses_random` gets
a key first.

The scalars, ids and statuses inside `op` are placeholders: a lowering reads only static fields, shapes and dtypes of
it.

Promise: the kinds of every built family all have a lowering, checked at import.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ir.errors import UnsupportedOp
from ir.op import Op

LoweringT = TypeVar("LoweringT", bound=Callable[..., Any])

_lowerings: dict[type[Op], Callable[..., Any]] = {}


def lower(*kinds: type[Op]) -> Callable[[LoweringT], LoweringT]:
    """Register a function as the lowering of `kinds`.

    Raises:
        RuntimeError: a kind has a lowering already.
    """

    def register(function: LoweringT) -> LoweringT:
        for kind in kinds:
            if kind in _lowerings:
                raise RuntimeError(f"{kind.__name__} has a lowering already: {_lowerings[kind].__qualname__}")
            _lowerings[kind] = function
        return function

    return register


def lowering_of(kind: type[Op]) -> Callable[..., Any]:
    """The lowering of `kind`.

    Raises:
        UnsupportedOp: there is none.
    """
    try:
        return _lowerings[kind]
    except KeyError:
        raise UnsupportedOp(f"{kind.__name__}: no lowering; `burn-xla coverage` lists what runs") from None


def lowering_name(kind: type[Op]) -> str:
    """Where the lowering of `kind` is: module and function.

    Raises:
        UnsupportedOp: there is none.
    """
    function = lowering_of(kind)
    return f"{function.__module__}.{function.__qualname__}"


def lowered_kinds() -> frozenset[type[Op]]:
    """Every kind that has a lowering."""
    return frozenset(_lowerings)


def assert_complete(kinds: Iterable[type[Op]]) -> None:
    """Check that each of `kinds` has a lowering.

    Raises:
        RuntimeError: names the kinds that have none.
    """
    if missing := [kind.__name__ for kind in kinds if kind not in _lowerings]:
        raise RuntimeError(f"kinds without a lowering: {', '.join(missing)}")
