"""Sorts and top-k. Source: burn-ir `NumericOperationIr`.

Floats are in IEEE total order (-NaN < -inf < .. < -0.0 < 0.0 < .. < inf < NaN); equals keep their order, in both
directions.
"""

from ir.dtype import Dim
from ir.op import In, Op, Out
from ir.ops.records import ReduceDim
from ir.registry import NUMERIC, kind


class SortRecord(Op):
    """Sorts along `dim`. Burn: `SortOpIr`."""

    input: In
    dim: Dim
    descending: bool
    out: Out


@kind(*NUMERIC)
class Sort(SortRecord):
    """`input` sorted along `dim`."""


@kind(*NUMERIC)
class ArgSort(SortRecord):
    """The indices that sort `input` along `dim`."""


@kind(*NUMERIC)
class SortWithIndices(Op):
    """`Sort` and `ArgSort` in one."""

    input: In
    dim: Dim
    descending: bool
    out: Out
    out_indices: Out


@kind(*NUMERIC)
class TopK(ReduceDim):
    """The k = `accumulator_len` largest elements along `axis`, descending."""


@kind(*NUMERIC)
class ArgTopK(ReduceDim):
    """Indices of the k = `accumulator_len` largest elements along `axis`, descending."""


@kind(*NUMERIC)
class TopKWithIndices(Op):
    """`TopK` and `ArgTopK` in one."""

    tensor: In
    dim: Dim
    k: Dim
    out: Out
    out_indices: Out
