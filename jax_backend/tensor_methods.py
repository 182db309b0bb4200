"""The methods of tensors, one per kind, made from the registry."""

import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Protocol

import ir
from ir.build import input_names, parameters
from ir.op import Op


class Records(Protocol):
    """What records operations for a tensor."""

    def record(self, kind: type[Op], /, *tensors: Any, **fields: Any) -> object:
        """Append an operation and return its outputs."""
        ...


class Operand(Protocol):
    """What the methods need of a tensor."""

    @property
    def recorder(self) -> Records:
        """Where it lives."""
        ...


def snake_case(name: str) -> str:
    """The method of a kind.

    >>> snake_case("MaxPool2dWithIndices"), snake_case("PRelu"), snake_case("Log1p")
    ('max_pool2d_with_indices', 'p_relu', 'log1p')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _method(kind: type[Op]) -> Callable[..., object]:
    """The method that records `kind` with the tensor as its first input, named and documented as the kind."""
    names = parameters(kind)
    tensors = frozenset(input_names(kind))
    first, *others = names

    def method(self: Operand, *given: object, **fields: Any) -> object:
        if len(given) > len(others):
            raise TypeError(f"{method.__name__}: expected at most {len(others)} arguments, got {len(given)}")
        named = dict(zip(others, given, strict=False))
        if twice := named.keys() & fields.keys():
            raise TypeError(f"{method.__name__}: {', '.join(sorted(twice))} given twice")
        fields.update(named, **{first: self})
        return self.recorder.record(kind, *(fields.pop(n, None) for n in names if n in tensors), **fields)

    method.__name__ = snake_case(kind.__name__)
    method.__qualname__ = f"Tensor.{method.__name__}"
    method.__doc__ = f"Record `{kind.__name__}`: {kind.__doc__}"
    kinds = [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in ("self", *others)]
    hints = [Parameter(n, Parameter.KEYWORD_ONLY, default=None) for n in ("out_shape", "out_dtype")]
    method.__signature__ = Signature([*kinds, *hints])  # type: ignore[attr-defined]
    return method


def equip(tensor: type[Operand]) -> None:
    """Give the class of tensors a method per kind that begins with a tensor."""
    for kind in ir.kinds():
        name = snake_case(kind.__name__)
        begins = input_names(kind)[:1] == parameters(kind)[:1] != () and kind not in (ir.Cat, ir.Drop)
        if begins and name not in vars(tensor):
            setattr(tensor, name, _method(kind))
