"""The tables of `OpCase` rows, one module per family, named as the modules of `ir.ops` and `ir.meganeura.ops`.

A table has `CASES`, may have `BAD_CASES`, and is found by being here.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ir.op import Op
from tests.cases import meganeura
from tests.opcase import BadCase, OpCase


def families() -> tuple[str, ...]:
    """The families of Burn's IR that have a table."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if not module.ispkg))


def meganeura_families() -> tuple[str, ...]:
    """Those of Meganeura's IR, such as `meganeura.conv`."""
    return tuple(sorted(f"meganeura.{module.name}" for module in iter_modules(meganeura.__path__)))


@cache
def cases(family: str) -> tuple[OpCase, ...]:
    """The rows of a family.

    Raises:
        ValueError: two rows have the same id.
    """
    rows = tuple(import_module(f"{__name__}.{family}").CASES)
    ids = [row.id for row in rows]
    if twice := {i for i in ids if ids.count(i) > 1}:
        raise ValueError(f"tests/cases, {family}: ids that occur twice: {', '.join(sorted(twice))}")
    return rows


@cache
def bad_cases(family: str) -> tuple[BadCase, ...]:
    """The operations of a family that must be refused."""
    return tuple(getattr(import_module(f"{__name__}.{family}"), "BAD_CASES", ()))


def tested_kinds(*among: str) -> frozenset[type[Op]]:
    """Every kind that some row runs, of the families `among` or of all."""
    return frozenset(type(row.op) for family in among or families() for row in cases(family))
