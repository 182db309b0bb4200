"""Reductions. Source: burn-ir `NumericOperationIr`.

Full forms give shape (1,); dim forms keep the axis with size 1. Integer sums wrap; halves accumulate in f32.
"""

from ir.dtype import Dim
from ir.op import In, Op, Out
from ir.ops.records import ReduceDim, Unary
from ir.registry import NUMERIC, kind


@kind(*NUMERIC)
class Sum(Unary):
    """Sum of all elements."""


@kind(*NUMERIC)
class Mean(Unary):
    """Mean of all elements; integers divide the wrapped sum, truncating."""


@kind(*NUMERIC)
class Prod(Unary):
    """Product of all elements."""


@kind(*NUMERIC)
class Max(Unary):
    """Largest element; NaN if there is one."""


@kind(*NUMERIC)
class Min(Unary):
    """Smallest element; NaN if there is one."""


@kind(*NUMERIC)
class MaxAbs(Unary):
    """Largest absolute value; NaN if there is one."""


@kind(*NUMERIC)
class SumDim(ReduceDim):
    """Sum along `axis`."""


@kind(*NUMERIC)
class MeanDim(ReduceDim):
    """Mean along `axis`; integers divide the wrapped sum, truncating."""


@kind(*NUMERIC)
class ProdDim(ReduceDim):
    """Product along `axis`."""


@kind(*NUMERIC)
class MaxDim(ReduceDim):
    """Largest element along `axis`; NaN if there is one."""


@kind(*NUMERIC)
class MinDim(ReduceDim):
    """Smallest element along `axis`; NaN if there is one."""


@kind(*NUMERIC)
class MaxAbsDim(ReduceDim):
    """Largest absolute value along `axis`; NaN if there is one."""


@kind(*NUMERIC)
class ArgMax(ReduceDim):
    """Index of the largest element along `axis`: the first NaN if any, else the first of equals."""


@kind(*NUMERIC)
class ArgMin(ReduceDim):
    """Index of the smallest element along `axis`: the first NaN if any, else the first of equals."""


@kind(*NUMERIC)
class SumDims(Op):
    """Sum along all of `axes`, each kept with size 1; none leaves `input` as it is. Burn 0.22.1 and later."""

    input: In
    out: Out
    axes: tuple[Dim, ...]


class WithIndices(Op):
    """Reduces `dim` to size 1 and says where the value was found. Burn: `ReduceDimWithIndicesOpIr`."""

    tensor: In
    dim: Dim
    out: Out
    out_indices: Out


@kind(*NUMERIC)
class MaxDimWithIndices(WithIndices):
    """`MaxDim` and `ArgMax` in one."""


@kind(*NUMERIC)
class MinDimWithIndices(WithIndices):
    """`MinDim` and `ArgMin` in one."""
