"""Fourier transforms of real signals, and the CTC loss."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

import ir
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const, out_dtype, widen_half


@lower(ir.Rfft)
def rfft(op: ir.Rfft, signal: Array) -> tuple[Array, Array]:
    """Real and imaginary part, not normalised."""
    re, im = real_to_spectrum(signal, op.dim, op.n)
    return re.astype(out_dtype(op.out_re)), im.astype(out_dtype(op.out_im))


@lower(ir.IRfft)
def irfft(op: ir.IRfft, input_re: Array, input_im: Array) -> Array:
    """The real signal, divided by its length."""
    return spectrum_to_real(input_re, input_im, op.dim, op.n).astype(out_dtype(op.out_signal))


def real_to_spectrum(signal: Array, dim: int, n: int | None) -> tuple[Array, Array]:
    """Transform along `dim`, cut or zero-padded to `n`: real and imaginary part, n // 2 + 1 long.

    Halves go through float32 and come back as float32.
    """
    spectrum = jnp.fft.rfft(widen_half(signal), n=n, axis=dim)
    return spectrum.real, spectrum.imag


def spectrum_to_real(re: Array, im: Array, dim: int, n: int | None) -> Array:
    """Inverse of `real_to_spectrum`; `n` is 2 * (bins - 1) if absent.

    The imaginary parts of bin 0 and, for an even `n`, of bin n / 2 cannot come from a real signal and do not count.
    """
    length = 2 * (re.shape[dim] - 1) if n is None else n
    bins = lax.broadcasted_iota(jnp.int32, re.shape, dim)
    # cuFFT reads these imaginary parts, other libraries do not.
    im = jnp.where((bins == 0) | (2 * bins == length), const(0, im), im)
    if length <= 1:  # jax.numpy refuses to make no sample, and one is bin 0 as it is
        return lax.slice_in_dim(widen_half(re), 0, length, axis=dim)
    return jnp.fft.irfft(lax.complex(widen_half(re), widen_half(im)), n=length, axis=dim)


@lower(ir.CtcLoss)
def ctc_loss(op: ir.CtcLoss, log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array) -> Array:
    """Negative log likelihood per sample; a target that no path reaches costs infinity."""
    wide = widen_half(log_probs)
    return _ctc_loss(wide, targets, input_lengths, target_lengths, op.blank).astype(out_dtype(op.out))


@lower(ir.CtcLossBackward)
def ctc_loss_backward(
    op: ir.CtcLossBackward,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    grad_loss: Array,
) -> Array:
    """grad_loss * (exp(log_probs) - posterior of each class): the gradient by the logits under a log-softmax.

    Exactly 0 beyond a sample's input length, and everywhere for a sample of infinite loss.
    """
    wide, grad = widen_half(log_probs), widen_half(grad_loss)
    forward = partial(
        _ctc_loss, targets=targets, input_lengths=input_lengths, target_lengths=target_lengths, blank=op.blank
    )
    loss, pull_back = jax.vjp(forward, wide)
    is_finite = jnp.isfinite(loss)
    (by_log_probs,) = pull_back(jnp.where(is_finite, grad, const(0, grad)).astype(loss.dtype))
    frames = lax.broadcasted_iota(input_lengths.dtype, wide.shape[:2], 0)
    counts = (frames < input_lengths[None]) & is_finite[None]
    gradient = grad[None, :, None] * jnp.exp(wide) + by_log_probs
    return jnp.where(counts[:, :, None], gradient, const(0, gradient)).astype(out_dtype(op.out))


def _ctc_loss(log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, blank: int) -> Array:
    """Forward algorithm in log space over the labels blank, l1, blank, .., blank of each sample.

    log_probs (T, N, C) · targets (N, S) · lengths (N,) -> (N,). Frame 0 always counts, so a length of 0 acts as 1.
    """
    num_frames, batch, _ = log_probs.shape
    num_states = 2 * targets.shape[1] + 1
    # Narrow integers could overflow in 2 * length + 1.
    targets, input_lengths, target_lengths = (x.astype(jnp.int32) for x in (targets, input_lengths, target_lengths))
    labels = jnp.full((batch, num_states), blank, jnp.int32).at[:, 1::2].set(targets)
    emitted = jnp.broadcast_to(labels[None], (num_frames, batch, num_states))
    emitted = jnp.take_along_axis(log_probs, emitted, axis=2, mode="clip")
    states = lax.broadcasted_iota(jnp.int32, (batch, num_states), 1)
    can_skip = (states >= 2) & (labels != blank) & (labels != jnp.roll(labels, 2, axis=1))
    last = 2 * target_lengths[:, None]
    never = const(-jnp.inf, log_probs)

    def shifted(alpha: Array, count: int) -> Array:
        return jnp.where(states < count, never, jnp.roll(alpha, count, axis=1))

    def advance(alpha: Array, frame: tuple[Array, Array]) -> tuple[Array, None]:
        place, scores = frame
        skipped = jnp.where(can_skip, shifted(alpha, 2), never)
        moved = _log_sum(jnp.stack([alpha, shifted(alpha, 1), skipped])) + scores
        return jnp.where((place < input_lengths)[:, None] & (states <= last), moved, alpha), None

    start = jnp.where(states < 2, emitted[0], never)
    alpha, _ = lax.scan(advance, start, (jnp.arange(1, num_frames, dtype=jnp.int32), emitted[1:]))
    is_end = (states == last) | (states + 1 == last)
    return -_log_sum(jnp.where(is_end, alpha, never).T)


def _log_sum(terms: Array) -> Array:
    """log(sum(exp(terms))) over axis 0: -inf where all are, with gradient 0 there instead of NaN."""
    top = terms.max(0)
    is_empty = top == -jnp.inf
    top = lax.stop_gradient(jnp.where(is_empty, const(0, top), top))
    total = jnp.exp(terms - top[None]).sum(0)
    return jnp.where(is_empty, const(-jnp.inf, top), top + jnp.log(jnp.where(is_empty, const(1, total), total)))
