"""Tests of the package `ir`."""
