"""The list of built families and the registry of lowerings keep each other honest."""

import pytest

import ir
from ir.registry import kinds
from jax_backend import ops
from jax_backend.lowering import assert_complete, lower, lowered_kinds, lowering_of
from jax_backend.ops.control import NO_PROGRAM


def test_every_kind_of_a_built_family_has_a_lowering() -> None:
    wanted = {kind for family in ops.BUILT for kind in ops.kinds_of(family)}
    assert wanted == lowered_kinds() & wanted
    assert {ir.Reshape, ir.ScatterNd} <= wanted


def test_a_family_is_named_as_its_module() -> None:
    modules = {kind.__module__.rpartition(".")[2] for kind in kinds()}
    assert set(ops.BUILT) <= modules


def test_kinds_without_a_program_have_no_lowering() -> None:
    assert not NO_PROGRAM & lowered_kinds()
    assert set(ops.kinds_of("control")) == {ir.AllReduce, ir.SyncCollective}


def test_a_missing_lowering_is_named() -> None:
    with pytest.raises(RuntimeError, match="kinds without a lowering: Init, Drop"):
        assert_complete([ir.Init, ir.Reshape, ir.Drop])
    with pytest.raises(ir.UnsupportedOp, match="Drop: no lowering"):
        lowering_of(ir.Drop)


def test_a_second_lowering_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Reshape has a lowering already: reshape"):
        lower(ir.Reshape)(lambda op, x: x)
