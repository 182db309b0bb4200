"""Plans of cases, one module per family, named as the modules of `ir.ops`.

A generator makes the structure of a case, which decides the compiled program: shapes, dtypes, options. Elements and
traced scalars are drawn later, as often as one likes, for the same structure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeAlias

from ir.dtype import DType
from ir.op import Op
from ir.registry import Form, forms
from ir.shapes import NOTHING, Given
from tests.burn.draw import BOOLS, FLOATS, INTS, Content, Dims, Draw, anything


@dataclass(frozen=True)
class Operand:
    """A tensor that goes in, and how its elements are made."""

    dims: Dims
    dtype: DType
    content: Content = anything


class Again(NamedTuple):
    """The same tensor as operand number `place`."""

    place: int


class Later(NamedTuple):
    """A static field that is drawn with the elements, being traced."""

    make: Callable[[Draw], Any]


@dataclass(frozen=True)
class Slack:
    """How far a float may lie from Burn's: `ulps` units in its last place, plus the rounding of a sum.

    A sum of `terms` products is off by up to `terms` roundings of its largest term. Each is one of `accumulator`: by
    default f32 for halves, else the dtype itself; halves that Burn rounds at each step name their own. The largest term
    is bounded by the product of the scalars and of the operands' largest elements, these to the power of `degree`.
    With `signed_zero`, 0.0 differs from -0.0.
    """

    ulps: float = 0
    terms: float = 0
    degree: int = 1
    accumulator: DType | None = None
    signed_zero: bool = False


MOVED = Slack(signed_zero=True)
"""Elements that are only moved keep their bits."""

EXACT = Slack()
"""IEEE fixes the result; either sign of zero is right."""

FUNCTION = Slack(ulps=8)
"""Functions whose last bits a library may choose: Rust's libm here, XLA's polynomials there."""


@dataclass(frozen=True)
class Plan:
    """The structure of a case.

    `compare` is how outputs are held against Burn's: by `values`, by `shape` alone, or as `draws` of one distribution.
    """

    kind: type[Op]
    operands: tuple["Operand | Again | tuple[Operand, ...] | None", ...]
    static: Mapping[str, Any] = field(default_factory=dict[str, Any])
    given: Given = NOTHING
    slack: Slack = EXACT
    compare: str = "values"


Generator: TypeAlias = Callable[[Draw, type[Op], DType], Plan]
_generators: dict[type[Op], tuple[str, Generator]] = {}


def plans(*kinds: type[Op]) -> Callable[[Generator], Generator]:
    """Register the generator of `kinds`."""

    def register(function: Generator) -> Generator:
        family = function.__module__.rpartition(".")[2]
        for kind in kinds:
            assert kind not in _generators, f"{kind.__name__} has two generators"
            _generators[kind] = (family, function)
        return function

    return register


@cache
def families() -> tuple[str, ...]:
    """The families, each a module of generators."""
    names = tuple(sorted(module.name for module in iter_modules(__path__)))
    for name in names:
        import_module(f"{__name__}.{name}")
    return names


def forms_of(family: str) -> tuple[Form, ...]:
    """The forms whose kind has its generator in `family`."""
    families()
    return tuple(form for form in forms().values() if form.kind in _generators and _generators[form.kind][0] == family)


def missing() -> list[str]:
    """Forms without a generator."""
    families()
    return [path for path, form in forms().items() if form.kind not in _generators]


def dtypes_of(form: Form) -> tuple[DType, ...]:
    """What the first operand of a form may be."""
    if form.family.endswith("Bool"):
        return BOOLS
    return INTS if form.family.endswith("Int") else FLOATS


def plan(form: Form, draw: Draw, dtype: DType) -> Plan:
    """A structure of `form` for `dtype`."""
    return _generators[form.kind][1](draw, form.kind, dtype)
