"""Every kind, and where it stands on the wire.

A kind is a class; a form is a kind under one outer variant of `OperationIr`. `Matmul`, `IntoInt` and `IntoFloat` stand
in two families each, the base operations in three. The registry is filled by importing `ir.ops` and frozen after it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from ir.op import Op

OpT = TypeVar("OpT", bound=type[Op])

BASE: Final = ("BaseFloat", "BaseInt", "BaseBool")
NUMERIC: Final = ("NumericFloat", "NumericInt")
FLOAT: Final = ("Float",)
INT: Final = ("Int",)
BOOL: Final = ("Bool",)
MODULE: Final = ("Module",)
ACTIVATION: Final = ("Activation",)
DISTRIBUTED: Final = ("Distributed",)

WITH_DTYPE: Final = frozenset({"NumericFloat", "NumericInt", "Float"})
"""Outer variants that carry a dtype beside the operation. It is a hint, never a rule."""

BARE: Final = frozenset({"Init", "Custom", "Drop"})
"""Outer variants that are a kind themselves."""


class Form(NamedTuple):
    """A kind under one outer variant: `family.kind` is its path on the wire."""

    family: str
    kind: type[Op]

    @property
    def path(self) -> str:
        """Path on the wire, such as `NumericFloat.Add`, or `Drop`."""
        return self.family if self.family in BARE else f"{self.family}.{self.kind.__name__}"


_forms: dict[str, Form] = {}
_families: dict[type[Op], tuple[str, ...]] = {}
_frozen = False


def kind(*families: str) -> Callable[[OpT], OpT]:
    """Register a class as a kind of `families`, the outer variants of `OperationIr`.

    Raises:
        RuntimeError: the form is taken, or the registry is frozen.
    """

    def register(cls: OpT) -> OpT:
        if _frozen:
            raise RuntimeError(f"{cls.__name__}: the registry is frozen; declare kinds in ir/ops")
        for family in families:
            form = Form(family, cls)
            if form.path in _forms:
                raise RuntimeError(f"{form.path} is registered twice")
            _forms[form.path] = form
        _families[cls] = families
        return cls

    return register


def freeze() -> None:
    """Refuse registrations from now on."""
    global _frozen
    _frozen = True


def forms() -> Mapping[str, Form]:
    """Every form by its path on the wire, in declared order."""
    return MappingProxyType(_forms)


def kinds() -> tuple[type[Op], ...]:
    """Every kind, in declared order."""
    return tuple(_families)


def families_of(cls: type[Op]) -> tuple[str, ...]:
    """The outer variants a kind stands under.

    Raises:
        KeyError: the class is no kind.
    """
    return _families[cls]
