"""Activations. Source: burn-ir `ActivationOperationIr`. Shape and dtype stay; halves are computed in f32."""

from ir.op import In, Op, Out, Scalar
from ir.ops.records import Binary, Unary, WithDim, WithScalar
from ir.registry import ACTIVATION, kind


@kind(*ACTIVATION)
class Relu(Unary):
    """max(input, 0); NaN stays."""


@kind(*ACTIVATION)
class Gelu(Unary):
    """x (1 + erf(x / sqrt 2)) / 2, exact."""


@kind(*ACTIVATION)
class Sigmoid(Unary):
    """1 / (1 + exp(-input))."""


@kind(*ACTIVATION)
class LogSigmoid(Unary):
    """-log(1 + exp(-input))."""


@kind(*ACTIVATION)
class ReluBackward(Binary):
    """Gradient of `Relu`: lhs is its output, rhs the gradient."""


@kind(*ACTIVATION)
class PRelu(Binary):
    """lhs where it is not negative, rhs * lhs elsewhere."""


@kind(*ACTIVATION)
class GeluBackward(Binary):
    """Gradient of `Gelu`: lhs is its input, rhs the gradient."""


@kind(*ACTIVATION)
class SigmoidBackward(Binary):
    """Gradient of `Sigmoid`: lhs is its output, rhs the gradient."""


@kind(*ACTIVATION)
class LogSigmoidBackward(Binary):
    """Gradient of `LogSigmoid`: lhs is its input, rhs the gradient."""


@kind(*ACTIVATION)
class LeakyRelu(WithScalar):
    """lhs where it is not negative, rhs * lhs elsewhere."""


@kind(*ACTIVATION)
class HardSigmoid(Op):
    """alpha * tensor + beta, held within 0 and 1."""

    tensor: In
    alpha: Scalar
    beta: Scalar
    out: Out


@kind(*ACTIVATION)
class Softmax(WithDim):
    """exp(input) normalised along `axis`."""


@kind(*ACTIVATION)
class LogSoftmax(WithDim):
    """Logarithm of `Softmax` along `axis`."""


@kind(*ACTIVATION)
class Softmin(WithDim):
    """`Softmax` of -input along `axis`."""
