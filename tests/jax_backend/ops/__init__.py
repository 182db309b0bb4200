"""Tests of the lowerings, beside the tables of tests/cases."""
