"""Record shapes that several kinds share, named as in burn-ir without the suffix `OpIr`."""

from ir.dtype import Dim
from ir.op import In, Op, Out, Scalar


class Unary(Op):
    """One tensor in, one out."""

    input: In
    out: Out


class Binary(Op):
    """Two tensors in, one out."""

    lhs: In
    rhs: In
    out: Out


class WithScalar(Op):
    """A tensor and a scalar in, a tensor out. Burn: `ScalarOpIr`."""

    lhs: In
    rhs: Scalar
    out: Out


class WithDim(Op):
    """Works along one axis. Burn: `DimOpIr`."""

    input: In
    out: Out
    axis: Dim


class ReduceDim(Op):
    """Reduces one axis, which is kept with size `accumulator_len`: 1, or k for the top-k kinds."""

    input: In
    out: Out
    axis: Dim
    accumulator_len: Dim


class Creation(Op):
    """Makes a tensor from nothing."""

    out: Out
