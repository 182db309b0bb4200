"""The committed coverage is that of the tables."""

from pathlib import Path

from ir.registry import forms
from jax_backend.coverage import IRS, Count, Coverage, both, committed, page
from tests.coverage import elsewhere_exists, forms_in_tables

MEND = "run `python scripts/write_coverage.py` and commit what it writes"


def test_the_committed_list_is_that_of_the_tables() -> None:
    assert {ir: committed(ir) for ir in IRS} == forms_in_tables(), MEND


def test_tests_outside_the_tables_are_there() -> None:
    assert elsewhere_exists()


def test_the_committed_page_is_current() -> None:
    written = (Path(__file__).parents[2] / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert written == page(both()), MEND


def test_counts_add_up() -> None:
    found = both()
    assert found["burn"].count().total == len(forms()) == 330
    for of in found.values():
        assert sum(of.count(family).total for family in of.families) == of.count().total


def test_every_kind_of_meganeura_runs_and_is_tested() -> None:
    assert both()["meganeura"].count() == Count(75, 75, 75)


def test_what_does_not_run_is_not_tested_and_is_named() -> None:
    some = Coverage(
        ("Float.Exp", "Float.Log", "Bool.Not", "Drop"), frozenset({"Float.Exp", "Drop"}), frozenset({"Drop"})
    )
    assert some.count() == Count(4, 2, 1)
    assert some.count("Float") == Count(2, 1, 0)
    assert some.families == ("Float", "Bool", "control")
    assert some.missing("Float") == ["Float.Exp", "Float.Log"]
    text = page({"burn": some})
    assert "| Float | 2 | 1 | 0 |" in text
    assert "- Bool: Not" in text
