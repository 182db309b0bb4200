"""Rules of the records that kinds share, and of the kinds that differ from their record by a bool or int output."""

from ir.dtype import F32
from ir.ops.activation import HardSigmoid
from ir.ops.base import All, AllDim, Any, AnyDim, Equal, EqualElem, NotEqual, NotEqualElem
from ir.ops.float import IntoFloat, IntoInt, IsInf, IsNan, PowfScalar
from ir.ops.numeric import (
    Clamp,
    ClampMax,
    ClampMin,
    Greater,
    GreaterElem,
    GreaterEqual,
    GreaterEqualElem,
    Lower,
    LowerElem,
    LowerEqual,
    LowerEqualElem,
    PowiScalar,
)
from ir.ops.records import Binary, Creation, ReduceDim, Unary, WithDim, WithScalar
from ir.shapes.formulas import axis_in, broadcast_dims, with_axis
from ir.shapes.rules import Given, Outputs, one, same_dtype, shape_rule, type_of


@shape_rule(Unary)
def unary(op: Unary, given: Given) -> Outputs:
    """The type of the input."""
    return (type_of(op.input),)


@shape_rule(Binary)
def binary(op: Binary, given: Given) -> Outputs:
    """Both broadcast, dtypes equal."""
    return one(broadcast_dims("rhs", op.lhs.shape.dims, op.rhs.shape.dims), same_dtype(op, "lhs", "rhs"))


@shape_rule(WithScalar, ClampMin, ClampMax, PowiScalar, PowfScalar)
def with_scalar(op: WithScalar | ClampMin | ClampMax | PowiScalar | PowfScalar, given: Given) -> Outputs:
    """The type of the tensor."""
    return (type_of(op.lhs),)


@shape_rule(Clamp, HardSigmoid)
def with_scalars(op: Clamp | HardSigmoid, given: Given) -> Outputs:
    """The type of the tensor."""
    return (type_of(op.tensor),)


@shape_rule(WithDim)
def with_dim(op: WithDim, given: Given) -> Outputs:
    """The type of the input."""
    axis_in("axis", op.axis, len(op.input.shape.dims))
    return (type_of(op.input),)


@shape_rule(ReduceDim)
def reduce_dim(op: ReduceDim, given: Given) -> Outputs:
    """The axis becomes `accumulator_len`."""
    dims = op.input.shape.dims
    return one(with_axis(dims, axis_in("axis", op.axis, len(dims)), op.accumulator_len), op.input.dtype)


@shape_rule(Creation)
def creation(op: Creation, given: Given) -> Outputs:
    """As asked for; f32 if no dtype is."""
    return one(given.shape(), given.dtype or F32)


@shape_rule(Equal, NotEqual, Greater, GreaterEqual, Lower, LowerEqual)
def comparison(op: Equal | NotEqual | Greater | GreaterEqual | Lower | LowerEqual, given: Given) -> Outputs:
    """Both broadcast, dtypes equal; bool."""
    same_dtype(op, "lhs", "rhs")
    return one(broadcast_dims("rhs", op.lhs.shape.dims, op.rhs.shape.dims), given.bool_dtype())


@shape_rule(EqualElem, NotEqualElem, GreaterElem, GreaterEqualElem, LowerElem, LowerEqualElem)
def scalar_comparison(op: WithScalar, given: Given) -> Outputs:
    """The shape of the tensor; bool."""
    return one(op.lhs.shape.dims, given.bool_dtype())


@shape_rule(IsNan, IsInf)
def predicate(op: IsNan | IsInf, given: Given) -> Outputs:
    """The shape of the input; bool."""
    return one(op.input.shape.dims, given.bool_dtype())


@shape_rule(All, Any)
def quantifier(op: All | Any, given: Given) -> Outputs:
    """One bool."""
    return one((1,), given.bool_dtype())


@shape_rule(AllDim, AnyDim)
def quantifier_dim(op: AllDim | AnyDim, given: Given) -> Outputs:
    """The axis becomes 1; bool."""
    dims = op.input.shape.dims
    return one(with_axis(dims, axis_in("axis", op.axis, len(dims)), op.accumulator_len), given.bool_dtype())


@shape_rule(IntoInt)
def into_int(op: IntoInt, given: Given) -> Outputs:
    """The shape of the input; the int dtype asked for, i32 by default."""
    return one(op.input.shape.dims, given.int_dtype())


@shape_rule(IntoFloat)
def into_float(op: IntoFloat, given: Given) -> Outputs:
    """The shape of the input; the float dtype asked for, f32 by default."""
    return one(op.input.shape.dims, given.float_dtype(F32))
