"""Float: functions of floats, matrix and cross products. Source: burn-ir `FloatOperationIr`.

Shape and dtype stay unless a kind says otherwise; halves are computed in f32 and rounded once.
`Random` is in `numeric`, the quantization kinds in `quantize`, `GridSample2d` in `interpolate`.
"""

from ir.dtype import Dim
from ir.op import In, Op, Out
from ir.ops.records import Binary, Unary
from ir.registry import BOOL, FLOAT, INT, kind
from ir.scalar import ScalarIr


@kind(*FLOAT)
class Exp(Unary):
    """e to the power of `input`."""


@kind(*FLOAT)
class Log(Unary):
    """Natural logarithm."""


@kind(*FLOAT)
class Log1p(Unary):
    """log(1 + input)."""


@kind(*FLOAT)
class Erf(Unary):
    """Error function."""


@kind(*FLOAT)
class Sqrt(Unary):
    """Square root."""


@kind(*FLOAT)
class Recip(Unary):
    """1 / input."""


@kind(*FLOAT)
class Sin(Unary):
    """Sine."""


@kind(*FLOAT)
class Cos(Unary):
    """Cosine."""


@kind(*FLOAT)
class Tan(Unary):
    """Tangent."""


@kind(*FLOAT)
class Sinh(Unary):
    """Hyperbolic sine."""


@kind(*FLOAT)
class Cosh(Unary):
    """Hyperbolic cosine."""


@kind(*FLOAT)
class Tanh(Unary):
    """Hyperbolic tangent."""


@kind(*FLOAT)
class ArcSin(Unary):
    """Inverse sine."""


@kind(*FLOAT)
class ArcCos(Unary):
    """Inverse cosine."""


@kind(*FLOAT)
class ArcTan(Unary):
    """Inverse tangent."""


@kind(*FLOAT)
class ArcSinh(Unary):
    """Inverse hyperbolic sine."""


@kind(*FLOAT)
class ArcCosh(Unary):
    """Inverse hyperbolic cosine."""


@kind(*FLOAT)
class ArcTanh(Unary):
    """Inverse hyperbolic tangent."""


@kind(*FLOAT)
class Round(Unary):
    """Nearest integer, halves to even."""


@kind(*FLOAT)
class Floor(Unary):
    """Largest integer not above."""


@kind(*FLOAT)
class Ceil(Unary):
    """Smallest integer not below."""


@kind(*FLOAT)
class Trunc(Unary):
    """Integer part."""


@kind(*FLOAT)
class IsNan(Unary):
    """Whether NaN; `out` is bool."""


@kind(*FLOAT)
class IsInf(Unary):
    """Whether infinite; `out` is bool."""


@kind(*FLOAT)
class PowfScalar(Op):
    """`lhs` to the power of a static scalar."""

    lhs: In
    rhs: ScalarIr
    out: Out


@kind(*FLOAT)
class Powf(Binary):
    """lhs to the power of rhs."""


@kind(*FLOAT)
class ArcTan2(Binary):
    """Angle of the point (x = rhs, y = lhs)."""


@kind(*FLOAT)
class Hypot(Binary):
    """sqrt(lhs² + rhs²) without overflow in between."""


@kind(*FLOAT, *INT)
class Matmul(Binary):
    """Matrix product: lhs (.., m, k) · rhs (.., k, n) -> out (.., m, n); the leading axes broadcast."""


@kind(*FLOAT, *BOOL)
class IntoInt(Unary):
    """`input` as integers: floats truncate and saturate, NaN gives 0; true gives 1."""


@kind(*INT, *BOOL)
class IntoFloat(Unary):
    """`input` as floats, to nearest even; true gives 1."""


@kind(*FLOAT)
class Cross(Op):
    """Cross product along `dim`, which has size 3."""

    lhs: In
    rhs: In
    out: Out
    dim: Dim
