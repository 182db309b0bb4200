"""Which forms of the two IRs run, and which of them a test compares with an independent reference.

A form is a kind under one outer variant of `OperationIr`: `BaseInt.Reshape`. `tested.json` beside this module lists the
tested ones; `scripts/write_coverage.py` writes it from the tables in `tests/cases`, and a test compares the two.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, NamedTuple

from ir.op import Op
from ir.operation import operation
from ir.registry import BARE, forms
from jax_backend.ops import BUILT, NO_PROGRAM, kinds_of

MEGANEURA_FORMS: Final = 75
"""Operations of Meganeura's IR. None of its kinds is declared here yet, so none runs."""

TESTED: Final = "tested.json"


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
        """The outer variants, in declared order; those without kinds of their own are `control`."""
        return tuple(dict.fromkeys(map(family_of, self.forms)))

    def missing(self, family: str) -> list[str]:
        """The forms of a family that do not run, or are not tested."""
        return [f for f in self.forms if family_of(f) == family and (f not in self.lowered or f not in self.tested)]


def family_of(form: str) -> str:
    """The outer variant of a form.

    >>> family_of("BaseInt.Reshape"), family_of("Drop")
    ('BaseInt', 'control')
    """
    return form.partition(".")[0] if form not in BARE else "control"


def form_of(op: Op) -> str:
    """The form that `op` stands for by the dtypes of its tensors."""
    return operation(op).path


def coverage(tested: Iterable[str] | None = None) -> Coverage:
    """The coverage of Burn's IR; `tested` by default from the committed list. What does not run is not tested."""
    known = forms()
    runs = NO_PROGRAM.union(*map(kinds_of, BUILT))
    lowered = frozenset(path for path, form in known.items() if form.kind in runs)
    return Coverage(tuple(known), lowered, lowered.intersection(committed() if tested is None else tested))


def committed() -> list[str]:
    """The tested forms as committed."""
    return json.loads(files("jax_backend").joinpath(TESTED).read_text(encoding="utf-8"))["burn"]


def totals(burn: Coverage) -> dict[str, dict[str, int]]:
    """The numbers of both IRs."""
    return {"burn": burn.count()._asdict(), "meganeura": Count(MEGANEURA_FORMS, 0, 0)._asdict()}


def page(burn: Coverage) -> str:
    """`docs/coverage.md`."""
    total = burn.count()
    lines = [
        "# Coverage",
        "",
        "Written by `python scripts/write_coverage.py`; do not edit.",
        "",
        "A form is a kind under one outer variant of `OperationIr`. *Run*: its family is complete. *Tested*: a row of",
        "`tests/cases` compares it, eager and compiled, with a value by hand or from an independent reference;",
        "`tests/coverage.py` names the tests of what no row can run.",
        "",
        "| family | forms | run | tested |",
        "|---|--:|--:|--:|",
        *(f"| {family} | {' | '.join(map(str, burn.count(family)))} |" for family in burn.families),
        f"| **Burn** | **{total.total}** | **{total.lowered}** | **{total.tested}** |",
        f"| **Meganeura** | **{MEGANEURA_FORMS}** | **0** | **0** |",
    ]
    gaps = [(family, missing) for family in burn.families if (missing := burn.missing(family))]
    if gaps:
        lines += ["", "## Missing", "", "Forms that do not run, or that no table tests yet:", ""]
        lines += [f"- {family}: {', '.join(f.rpartition('.')[2] for f in missing)}" for family, missing in gaps]
    return "\n".join([*lines, ""])
