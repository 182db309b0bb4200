"""Base: shape, casts, comparison, creation; float, int and bool tensors alike. Source: burn-ir `BaseOperationIr`."""

from ir.dtype import Dim
from ir.op import In, InList, Op, Out, Ranges, Scalar
from ir.ops.records import Binary, Creation, ReduceDim, Unary, WithScalar
from ir.registry import BASE, kind


@kind(*BASE)
class Reshape(Unary):
    """The elements of `input`, in row-major order, in the shape of `out`."""


@kind(*BASE)
class SwapDims(Op):
    """`input` with the axes `dim1` and `dim2` exchanged."""

    input: In
    out: Out
    dim1: Dim
    dim2: Dim


@kind(*BASE)
class Permute(Op):
    """`input` with its axes reordered: axis i of `out` is axis `axes[i]` of `input`."""

    input: In
    out: Out
    axes: tuple[Dim, ...]


@kind(*BASE)
class Flip(Op):
    """`input` reversed along each of `axes`; none leaves it as it is."""

    input: In
    out: Out
    axes: tuple[Dim, ...]


@kind(*BASE)
class Expand(Unary):
    """`input` broadcast to the shape of `out`, aligned at the innermost axis."""


@kind(*BASE)
class Unfold(Op):
    """Sliding windows of `size` elements, `step` apart, along `dim`.

    input (.., n, ..) -> out (.., windows, .., size), windows = (n - size) // step + 1, or 0 where size > n.
    """

    input: In
    out: Out
    dim: Dim
    size: Dim
    step: Dim


@kind(*BASE)
class Slice(Op):
    """The elements of `tensor` that `ranges` selects, a range per axis; axes beyond the list are taken whole."""

    tensor: In
    ranges: Ranges
    out: Out


@kind(*BASE)
class SliceAssign(Op):
    """`tensor` with what `ranges` selects replaced by `value`, which has the shape that `Slice` would give."""

    tensor: In
    ranges: Ranges
    value: In
    out: Out


@kind(*BASE)
class MaskWhere(Op):
    """`value` where `mask` is true, `tensor` elsewhere; the three broadcast."""

    tensor: In
    mask: In
    value: In
    out: Out


@kind(*BASE)
class MaskFill(Op):
    """The scalar `value` where `mask` is true, `tensor` elsewhere; the two broadcast."""

    tensor: In
    mask: In
    value: Scalar
    out: Out


@kind(*BASE)
class Equal(Binary):
    """lhs == rhs, elementwise, with broadcasting; `out` is bool."""


@kind(*BASE)
class NotEqual(Binary):
    """lhs != rhs, elementwise, with broadcasting; `out` is bool."""


@kind(*BASE)
class EqualElem(WithScalar):
    """lhs == rhs for a scalar rhs; `out` is bool."""


@kind(*BASE)
class NotEqualElem(WithScalar):
    """lhs != rhs for a scalar rhs; `out` is bool."""


@kind(*BASE)
class RepeatDim(Op):
    """`tensor` repeated as a whole `times` times along `dim`."""

    tensor: In
    dim: Dim
    times: Dim
    out: Out


@kind(*BASE)
class Cat(Op):
    """`tensors` joined along `dim`; all other sizes agree."""

    tensors: InList
    dim: Dim
    out: Out


@kind(*BASE)
class Cast(Unary):
    """`input` in the dtype of `out`, within the same family of dtypes."""


@kind(*BASE)
class Empty(Creation):
    """A tensor whose elements nobody relies on."""


@kind(*BASE)
class Ones(Creation):
    """A tensor of ones, or of true."""


@kind(*BASE)
class Zeros(Creation):
    """A tensor of zeros, or of false."""


@kind(*BASE)
class All(Unary):
    """Whether every element is non-zero, as a bool tensor of shape (1,)."""


@kind(*BASE)
class Any(Unary):
    """Whether some element is non-zero, as a bool tensor of shape (1,)."""


@kind(*BASE)
class AllDim(ReduceDim):
    """Whether every element along `axis` is non-zero; `out` is bool and keeps the axis with size 1."""


@kind(*BASE)
class AnyDim(ReduceDim):
    """Whether some element along `axis` is non-zero; `out` is bool and keeps the axis with size 1."""
