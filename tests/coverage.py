"""Which forms the tables test."""

from ir.registry import forms
from jax_backend.coverage import form_of
from tests.cases import cases, families


def tested_forms() -> list[str]:
    """The forms that some row of `tests/cases` runs, in declared order."""
    found = {form_of(row.op) for family in families() for row in cases(family)}
    return [form for form in forms() if form in found]
