"""Bool: logic. Source: burn-ir `BoolOperationIr`. `IntoInt` and `IntoFloat` are in `float`."""

from ir.ops.records import Binary, Unary
from ir.registry import BOOL, kind


@kind(*BOOL)
class Not(Unary):
    """not input."""


@kind(*BOOL)
class And(Binary):
    """lhs and rhs."""


@kind(*BOOL)
class Or(Binary):
    """lhs or rhs."""


@kind(*BOOL)
class Xor(Binary):
    """lhs xor rhs."""
