"""Every kind of Meganeura on a batch: `jax.vmap` of its lowering, as a session with `batch` runs it."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ir.op import Op
from tests.cases import cases, meganeura_families
from tests.opcase import OpCase
from tests.test_every_op import program_of


def first_rows() -> dict[type[Op], OpCase]:
    """The first row with operands of each kind."""
    rows = [row for family in meganeura_families() for row in cases(family) if row.inputs]
    return {type(row.op): row for row in reversed(rows)}


ROWS = first_rows()


def run(case: OpCase, inputs: list[Any]) -> Any:
    return program_of(case.op, case.inputs).run(inputs, (), ())[0]


@cache
def results() -> dict[type[Op], tuple[Any, Any]]:
    """Of each kind the results of two sets of operands, batched and one by one; one compilation for all."""

    def everything(given: list[list[jax.Array]]) -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []
        for case, sets in zip(ROWS.values(), given, strict=True):
            batched = jax.vmap(lambda *x, case=case: run(case, list(x)))(*sets)
            found.append((batched, jnp.stack([run(case, [x[n] for x in sets]) for n in range(2)])))
        return found

    def two_sets(case: OpCase) -> list[jax.Array]:
        arrays = [x.array for x in case.inputs]
        return [jnp.asarray(np.stack([a, a * 0.5 if a.dtype == np.float32 else a]), a.dtype) for a in arrays]

    return dict(zip(ROWS, jax.jit(everything)([two_sets(case) for case in ROWS.values()]), strict=True))


@pytest.mark.xdist_group("meganeura-batched")
@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_a_batch_gives_what_its_sets_give_alone(kind: type[Op]) -> None:
    batched, alone = results()[kind]
    assert batched.shape == (2, *ROWS[kind].want[0].array.shape)
    np.testing.assert_allclose(batched, alone, rtol=1e-5, atol=1e-6)


def test_every_kind_with_operands_is_here() -> None:
    assert len(ROWS) == 75 - 4, "all but Parameter, Input, Constant and Nop"
