"""The lowerings, one module per family, named as the modules of `ir.ops`. Importing this registers and checks them."""

from typing import Final

from ir.meganeura.ops import kinds as meganeura_kinds
from ir.op import Op
from ir.registry import kinds
from jax_backend.lowering import assert_complete
from jax_backend.ops import (
    activation,
    attention,
    base,
    bool,
    control,
    conv,
    float,
    indexing,
    int,
    interpolate,
    linear,
    meganeura,
    numeric,
    pool,
    quantize,
    reduce,
    signal,
    sort,
)
from jax_backend.ops import deform as deform  # the deformable kinds of the family conv
from jax_backend.ops.control import NO_PROGRAM

FAMILIES = (
    activation,
    attention,
    base,
    bool,
    control,
    conv,
    float,
    indexing,
    int,
    interpolate,
    linear,
    numeric,
    pool,
    quantize,
    reduce,
    signal,
    sort,
)
BUILT: Final = tuple(module.__name__.rpartition(".")[2] for module in FAMILIES)
"""The families whose every kind has a lowering. A family enters when its last lowering does."""

MEGANEURA: Final = tuple(f"meganeura.{module.__name__.rpartition('.')[2]}" for module in meganeura.FAMILIES)
"""The families of Meganeura's IR; every kind has a lowering."""


def kinds_of(family: str) -> tuple[type[Op], ...]:
    """The kinds of a family that need a lowering, in declared order; `meganeura.conv` is one of Meganeura's."""
    owner, _, name = family.rpartition(".")
    among = meganeura_kinds().values() if owner else kinds()
    module = f"ir.{owner}.ops.{name}" if owner else f"ir.ops.{name}"
    return tuple(k for k in among if k.__module__ == module and k not in NO_PROGRAM | meganeura.NO_PROGRAM)


for _family in (*BUILT, *MEGANEURA):
    assert_complete(kinds_of(_family))
