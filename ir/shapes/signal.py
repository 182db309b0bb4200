"""Rules of the Fourier transforms and the CTC loss. Source: burn-ir `builder.rs`."""

from ir.errors import ShapeError
from ir.ops.signal import CtcLoss, CtcLossBackward, IRfft, Rfft
from ir.shapes.formulas import Dims, axis_in, show, with_axis
from ir.shapes.rules import Given, Outputs, TensorType, one, same_dtype, shape_rule, type_of, want_dims, want_family


def rfft_dims(dims: Dims, dim: int, n: int | None) -> Dims:
    """Shape of the transform of a real signal: `n // 2 + 1` bins along `dim`, n being the size there if None.

    >>> rfft_dims((3, 8), 1, None), rfft_dims((3, 8), 1, 5)
    ((3, 5), (3, 3))

    Raises:
        ShapeError: `dim` is no axis, or the length is 0.
    """
    length = dims[axis_in("dim", dim, len(dims))] if n is None else n
    if length < 1:
        raise ShapeError(f"n: expected at least 1, got {length}")
    return with_axis(dims, dim, length // 2 + 1)


def irfft_dims(dims: Dims, dim: int, n: int | None) -> Dims:
    """Shape of the real signal of a transform: n along `dim`, `2 * (bins - 1)` if None, so nothing for a single bin.

    >>> irfft_dims((3, 5), 1, None), irfft_dims((3, 5), 1, 9)
    ((3, 8), (3, 9))

    Raises:
        ShapeError: `dim` is no axis, or there is no bin to count from.
    """
    bins = dims[axis_in("dim", dim, len(dims))]
    length = 2 * (bins - 1) if n is None else n
    if length < 0:
        raise ShapeError("n: expected a length where the transform has no bins, got none")
    return with_axis(dims, dim, length)


@shape_rule(Rfft)
def rfft(op: Rfft, given: Given) -> Outputs:
    """Real and imaginary part."""
    part = TensorType(rfft_dims(op.signal.shape.dims, op.dim, op.n), op.signal.dtype)
    return part, part


@shape_rule(IRfft)
def irfft(op: IRfft, given: Given) -> Outputs:
    """The signal."""
    dims = op.input_re.shape.dims
    want_dims("input_im", op.input_im, dims, f"input_re {show(dims)}")
    return one(irfft_dims(dims, op.dim, op.n), same_dtype(op, "input_re", "input_im"))


def _check_ctc(op: CtcLoss | CtcLossBackward) -> None:
    """log_probs (T, N, C) · targets (N, S) · lengths (N,)."""
    want_dims("log_probs", op.log_probs, ("T", "N", "C"))
    dims = op.log_probs.shape.dims
    context = f"log_probs {show(dims)}"
    want_dims("targets", op.targets, (dims[1], "S"), context)
    for name, tensor in (("input_lengths", op.input_lengths), ("target_lengths", op.target_lengths)):
        want_dims(name, tensor, (dims[1],), context)
        want_family(name, tensor, "int")
    want_family("targets", op.targets, "int")
    if op.blank >= dims[2]:
        raise ShapeError(f"blank: expected a class below {dims[2]} for {context}, got {op.blank}")


@shape_rule(CtcLoss)
def ctc_loss(op: CtcLoss, given: Given) -> Outputs:
    """A loss per sample."""
    _check_ctc(op)
    return one((op.log_probs.shape.dims[1],), op.log_probs.dtype)


@shape_rule(CtcLossBackward)
def ctc_loss_backward(op: CtcLossBackward, given: Given) -> Outputs:
    """The type of the log probabilities."""
    _check_ctc(op)
    dims = op.log_probs.shape.dims
    want_dims("grad_loss", op.grad_loss, (dims[1],), f"log_probs {show(dims)}")
    same_dtype(op, "log_probs", "grad_loss")
    return (type_of(op.log_probs),)
