"""Which forms are tested: by the tables, or by tests of their own."""

from importlib import import_module
from typing import Final

from jax_backend.coverage import IRS, both, form_of
from tests.cases import cases, families, meganeura_families

_LEAVES: Final = "tests.jax_backend.test_meganeura_programs:test_leaves_are_arguments_and_deleted_nodes_are_left_out"

ELSEWHERE: Final = {
    "Init": "tests.jax_backend.test_replay:test_a_session_gives_the_recorded_answers",
    "Drop": "tests.jax_backend.test_replay:test_a_session_gives_the_recorded_answers",
    "leaf.Parameter": _LEAVES,
    "leaf.Input": _LEAVES,
    "leaf.Nop": _LEAVES,
}
"""Forms that no row can run by itself, and the test that does."""


def forms_in_tables() -> dict[str, list[str]]:
    """The forms of each IR that some row of `tests/cases` runs, or a test of `ELSEWHERE`, in declared order."""
    tables = (*families(), *meganeura_families())
    found = {form_of(row.op) for family in tables for row in cases(family)} | ELSEWHERE.keys()
    known = both(dict.fromkeys(IRS, ()))
    return {ir: [form for form in known[ir].forms if form in found] for ir in IRS}


def elsewhere_exists() -> bool:
    """Whether each test that `ELSEWHERE` names is there."""
    places = [test.split(":") for test in ELSEWHERE.values()]
    return all(hasattr(import_module(module), name) for module, name in places)
