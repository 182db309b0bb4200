"""Int: bitwise operations. Source: burn-ir `IntOperationIr`. `Matmul` and `IntoFloat` are in `float`.

Shift amounts are taken modulo the width of the dtype; a right shift is arithmetic on signed ints.
"""

from ir.ops.records import Binary, Unary, WithScalar
from ir.registry import INT, kind


@kind(*INT)
class BitwiseAnd(Binary):
    """lhs & rhs."""


@kind(*INT)
class BitwiseOr(Binary):
    """lhs | rhs."""


@kind(*INT)
class BitwiseXor(Binary):
    """lhs ^ rhs."""


@kind(*INT)
class BitwiseLeftShift(Binary):
    """lhs << rhs."""


@kind(*INT)
class BitwiseRightShift(Binary):
    """lhs >> rhs."""


@kind(*INT)
class BitwiseAndScalar(WithScalar):
    """lhs & rhs."""


@kind(*INT)
class BitwiseOrScalar(WithScalar):
    """lhs | rhs."""


@kind(*INT)
class BitwiseXorScalar(WithScalar):
    """lhs ^ rhs."""


@kind(*INT)
class BitwiseLeftShiftScalar(WithScalar):
    """lhs << rhs."""


@kind(*INT)
class BitwiseRightShiftScalar(WithScalar):
    """lhs >> rhs."""


@kind(*INT)
class BitwiseNot(Unary):
    """~input."""
