"""Which forms of the two IRs run, and which of them a test compares with an independent reference.

A form of Burn's IR is a kind under one outer variant of `OperationIr`: `BaseInt.Reshape`; one of Meganeura's is a kind
in its family: `conv.Conv2d`. `tested.json` beside this module lists the tested ones; `scripts/write_coverage.py` writes
it from the tables in `tests/cases`, and a test compares the two.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, NamedTuple

from ir.meganeura.ops import kinds as meganeura_kinds
from ir.op import Op
from ir.operation import operation
from ir.registry import BARE, forms
from jax_backend.ops import BUILT, MEGANEURA, NO_PROGRAM, kinds_of, meganeura

TESTED: Final = "tested.json"
IRS: Final = ("burn", "meganeura")


class Count(NamedTuple):
    """How many forms there are, how many run, how many are tested."""

    total: int
    lowered: int
    tested: int


@dataclass(frozen=True)
class Coverage:
    """Paths of forms, in declared order: all, those that run, those that are tested."""

    forms: tuple[str, ...]
    lowered: frozenset[str]
    tested: frozenset[str]

    def count(self, family: str | None = None) -> Count:
        """The numbers of one family, or of all."""
        mine = [f for f in self.forms if family is None or family_of(f) == family]
        return Count(len(mine), sum(f in self.lowered for f in mine), sum(f in self.tested for f in mine))

    @property
    def families(self) -> tuple[str, ...]:
        """The outer variants or families, in declared order; outer variants without kinds are `control`."""
        return tuple(dict.fromkeys(map(family_of, self.forms)))

    def missing(self, family: str) -> list[str]:
        """The forms of a family that do not run, or are not tested."""
        return [f for f in self.forms if family_of(f) == family and (f not in self.lowered or f not in self.tested)]


def family_of(form: str) -> str:
    """The outer variant or family of a form.

    >>> family_of("BaseInt.Reshape"), family_of("Drop"), family_of("conv.Conv2d")
    ('BaseInt', 'control', 'conv')
    """
    return form.partition(".")[0] if form not in BARE else "control"


def form_of(op: Op) -> str:
    """The form that `op` stands for: for Burn's by the dtypes of its tensors."""
    kind = type(op)
    return meganeura_form(kind) if kind in meganeura_kinds().values() else operation(op).path


def meganeura_form(kind: type[Op]) -> str:
    """Family and name of a kind of Meganeura."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def coverage(tested: Iterable[str] | None = None) -> Coverage:
    """The coverage of Burn's IR; `tested` by default from the committed list. What does not run is not tested."""
    known = forms()
    runs = NO_PROGRAM.union(*map(kinds_of, BUILT))
    lowered = frozenset(path for path, form in known.items() if form.kind in runs)
    return Coverage(tuple(known), lowered, lowered.intersection(committed("burn") if tested is None else tested))


def meganeura_coverage(tested: Iterable[str] | None = None) -> Coverage:
    """The coverage of Meganeura's IR."""
    known = {meganeura_form(kind): kind for kind in meganeura_kinds().values()}
    runs = meganeura.NO_PROGRAM.union(*map(kinds_of, MEGANEURA))
    lowered = frozenset(form for form, kind in known.items() if kind in runs)
    ordered = sorted(known, key=family_of)
    return Coverage(tuple(ordered), lowered, lowered.intersection(committed("meganeura") if tested is None else tested))


def both(tested: Mapping[str, Iterable[str]] | None = None) -> dict[str, Coverage]:
    """The coverage of each IR by its name."""
    given = tested or {name: committed(name) for name in IRS}
    return {"burn": coverage(given["burn"]), "meganeura": meganeura_coverage(given["meganeura"])}


def committed(ir: str) -> list[str]:
    """The tested forms of an IR as committed."""
    return json.loads(files("jax_backend").joinpath(TESTED).read_text(encoding="utf-8"))[ir]


def page(found: Mapping[str, Coverage]) -> str:
    """`docs/coverage.md`."""
    lines = [
        "# Coverage",
        "",
        "Written by `python scripts/write_coverage.py`; do not edit.",
        "",
        "A form is a kind under one outer variant of Burn's `OperationIr`, or a kind of Meganeura's `Op`. *Run*: its",
        "family is complete. *Tested*: a row of `tests/cases` compares it, eager and compiled, with a value by hand or",
        "from an independent reference; `tests/coverage.py` names the tests of what no row can run.",
    ]
    for ir, of in found.items():
        lines += ["", f"| {ir.capitalize()} | forms | run | tested |", "|---|--:|--:|--:|"]
        lines += [f"| {family} | {' | '.join(map(str, of.count(family)))} |" for family in of.families]
        lines.append(f"| **all** | {' | '.join(f'**{n}**' for n in of.count())} |")
    gaps = [(family, missing) for of in found.values() for family in of.families if (missing := of.missing(family))]
    if gaps:
        lines += ["", "## Missing", "", "Forms that do not run, or that no table tests yet:", ""]
        lines += [f"- {family}: {', '.join(f.rpartition('.')[2] for f in missing)}" for family, missing in gaps]
    return "\n".join([*lines, ""])
