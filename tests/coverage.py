"""Which forms are tested: by the tables, or by tests of their own."""

from importlib import import_module
from typing import Final

from ir.registry import forms
from jax_backend.coverage import form_of
from tests.cases import cases, families

ELSEWHERE: Final = {
    "Init": "tests.jax_backend.test_replay:test_a_session_gives_the_recorded_answers",
    "Drop": "tests.jax_backend.test_replay:test_a_session_gives_the_recorded_answers",
}
"""Forms that no row can run by itself, and the test that does."""


def forms_in_tables() -> list[str]:
    """The forms that some row of `tests/cases` runs, or a test of `ELSEWHERE`, in declared order."""
    found = {form_of(row.op) for family in families() for row in cases(family)} | ELSEWHERE.keys()
    return [form for form in forms() if form in found]


def elsewhere_exists() -> bool:
    """Whether each test that `ELSEWHERE` names is there."""
    places = [test.split(":") for test in ELSEWHERE.values()]
    return all(hasattr(import_module(module), name) for module, name in places)
