"""Random kinds: bounds, moments, and that the same seed gives the same numbers. No bit is promised to equal Burn's.

Margins are six standard errors for a mean, more for a spread: with seeds fixed, a failure is a fault.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import jax
import numpy as np
import pytest

import ir
from ir import BF16, F16, F32, F64, FLEX32, I8, I16, I32, I64, U8, U16, U32, U64
from ir.dtype import PlainDType
from ir.op import Op
from ir.ops.numeric import DefaultDistribution, Distribution, DistributionParams
from ir.stream import relativise
from jax_backend import ops as ops
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.dtypes import jax_dtype
from jax_backend.interpreter import run_graph
from jax_backend.rng import RandomState

SHAPE = (101, 331)
COUNT = 101 * 331
FLOATS: tuple[PlainDType, ...] = (F64, F32, FLEX32, F16, BF16)
SIGNED: tuple[PlainDType, ...] = (I64, I32, I16, I8)
UNSIGNED: tuple[PlainDType, ...] = (U64, U32, U16, U8)
DEFAULT = DefaultDistribution.Default


class Draw(NamedTuple):
    """A distribution in a dtype, and what comes out of it: range, both ends included, mean and standard deviation."""

    dtype: PlainDType
    distribution: Distribution
    low: float
    high: float
    mean: float
    std: float

    @property
    def op(self) -> Op:
        """The operation that draws it."""
        return random(self.dtype, self.distribution)

    def __str__(self) -> str:
        given = self.distribution
        name = given.value if isinstance(given, DefaultDistribution) else given.variant
        return f"{name}-{self.dtype.short}".lower()


def random(dtype: PlainDType, distribution: Distribution, shape: tuple[int, ...] = SHAPE, id: int = 0) -> Op:
    """`Random` or `IntRandom`, by the dtype."""
    return (ir.IntRandom if dtype.is_int else ir.Random)(ir.tensor(id, shape, dtype, ir.NOT_INIT), distribution)


def run(ops: Sequence[Op], state: RandomState) -> list[np.ndarray]:
    """The outputs of `ops`, compiled as one program, in float64 if they are halves."""
    graph, bindings = relativise([with_id(op, n) for n, op in enumerate(ops)])
    scalars = [
        np.asarray(slot.convert(value.value, slot.dtype), jax_dtype(slot.dtype))
        for value, slot in zip(bindings.scalars, graph.scalars, strict=True)
    ]
    key = np.array(state.take(graph.num_random), np.uint32)
    program = jax.jit(lambda scalars, key: run_graph(graph, (), scalars, (), key, CustomOpRegistry()))
    results = [np.asarray(x) for x in program(scalars, key)]
    return [
        x.astype(np.float64) if op.outputs[0].dtype in (F16, BF16) else x for op, x in zip(ops, results, strict=True)
    ]


def with_id(op: Op, id: int) -> Op:
    """`op` with another output."""
    return ir.map_tensors(op, lambda t: ir.tensor(id, t.shape.dims, t.dtype, t.status))


def draws() -> list[Draw]:
    """Every distribution in every dtype."""
    rows: list[Draw] = []
    for d in FLOATS:
        rows += [
            Draw(d, DEFAULT, 0, 1, 0.5, 12**-0.5),
            Draw(d, DistributionParams(Uniform=(-3.0, 7.0)), -3, 7, 2, 10 * 12**-0.5),
            Draw(d, DistributionParams(Normal=(2.5, 3.0)), 2.5 - 18, 2.5 + 18, 2.5, 3),
            Draw(d, DistributionParams(Bernoulli=0.3), 0, 1, 0.3, 0.21**0.5),
        ]
    for d in (*SIGNED, *UNSIGNED):
        info = np.iinfo(jax_dtype(d))
        low, high = float(info.min), float(info.max)
        rows += [
            Draw(d, DEFAULT, low, high, (low + high) / 2, (high - low) * 12**-0.5),
            Draw(d, DistributionParams(Bernoulli=0.3), 0, 1, 0.3, 0.21**0.5),
        ]
    for d in SIGNED:
        rows += [
            Draw(d, DistributionParams(Uniform=(-3.7, 4.9)), -3, 3, 0, 2),  # -3..=3
            Draw(d, DistributionParams(Normal=(3.0, 10.0)), -57, 63, 2.88, 9.7),  # 0.12 and 0.3 go by truncation
        ]
    for d in UNSIGNED:
        rows += [
            Draw(d, DistributionParams(Uniform=(2.2, 9.9)), 2, 8, 5, 2),  # 2..=8
            Draw(d, DistributionParams(Normal=(100.0, 10.0)), 40, 160, 99.5, 10),
        ]
    return rows


DRAWS = draws()


@cache
def drawn(seed: int) -> list[np.ndarray]:
    """Every draw of the table, from one program."""
    return run([row.op for row in DRAWS], RandomState(seed))


@pytest.mark.parametrize("index", range(len(DRAWS)), ids=list(map(str, DRAWS)))
def test_moments(index: int) -> None:
    """Values keep to the range, and mean and spread are those of the distribution."""
    row, values = DRAWS[index], drawn(7)[index]
    assert values.shape == SHAPE
    assert row.low <= values.min()
    assert values.max() <= row.high
    wide = values.astype(np.float64)
    assert abs(wide.mean() - row.mean) < 6 * row.std * COUNT**-0.5
    assert abs(wide.std() / row.std - 1) < 0.05


@pytest.mark.parametrize("index", range(len(DRAWS)), ids=list(map(str, DRAWS)))
def test_independent(index: int) -> None:
    """Neighbours are not correlated, along a row and from one row to the next."""
    row, values = DRAWS[index], drawn(7)[index].astype(np.float64)
    centred = (values - row.mean) / row.std
    for product in (centred[1:] * centred[:-1], centred[:, 1:] * centred[:, :-1]):
        assert abs(product.mean()) < 8 * COUNT**-0.5


def test_same_seed_same_numbers_other_seed_others() -> None:
    """The numbers depend on the seed and on nothing else."""
    ops = [random(F32, DEFAULT), random(I64, DEFAULT)]
    first, again, other = (run(ops, RandomState(seed)) for seed in (7, 7, 8))
    for a, b, c in zip(first, again, other, strict=True):
        assert (a == b).all()
        assert (a != c).mean() > 0.99


def test_draws_of_one_program_differ() -> None:
    """Each operation has numbers of its own."""
    first, second = run([random(F32, DEFAULT)] * 2, RandomState(1))
    assert (first != second).mean() > 0.99


def test_numbers_do_not_depend_on_the_cut() -> None:
    """Two programs of one draw each give what one program of two gives."""
    op, state = random(F32, DEFAULT), RandomState(3)
    apart = [*run([op], state), *run([op], state)]
    for a, b in zip(run([op, op], RandomState(3)), apart, strict=True):
        assert (a == b).all()


def test_uniform_never_rounds_up_to_its_high_bound() -> None:
    """Between 1 and two units above it, a quarter of the sums round up to the bound."""
    high = 1 + 2.0**-22
    (values,) = run([random(F32, DistributionParams(Uniform=(1.0, high)))], RandomState(5))
    assert set(np.unique(values).tolist()) == {1.0, 1 + 2.0**-23}


def test_default_ints_reach_every_value() -> None:
    """All 256 values of a byte occur equally often: 131 times, give or take six standard deviations."""
    for values in run([random(U8, DEFAULT), random(I8, DEFAULT)], RandomState(11)):
        counts = np.bincount(values.view(np.uint8).ravel(), minlength=256)
        assert counts.min() > 60
        assert counts.max() < 200


def test_uniform_ints_reach_both_ends_of_a_wide_range() -> None:
    """Bounds outside the dtype are held to it; 64-bit bounds keep their low bits."""
    beyond = random(I8, DistributionParams(Uniform=(-1000.0, 1000.0)))
    high = random(U64, DistributionParams(Uniform=(2.0**62, 2.0**62 + 4096)))
    held, large = run([beyond, high], RandomState(2))
    assert (held.min(), held.max()) == (-128, 127)
    assert len(np.unique(large)) > 4000
    assert large.min() >= 2**62
    assert large.max() < 2**62 + 4096


def test_bernoulli_draws_two_values() -> None:
    """A draw is 0 or 1, in halves too."""
    (values,) = run([random(BF16, DistributionParams(Bernoulli=0.5))], RandomState(4))
    assert np.unique(values).tolist() == [0, 1]
