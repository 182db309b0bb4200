"""Tests of the package `ir.meganeura`."""
