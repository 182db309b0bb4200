"""Fourier transforms (0.22.0-pre.2 alone has them) and the CTC loss. Source: burn-ir `ModuleOperationIr`."""

from ir.dtype import Dim
from ir.op import In, Op, Out
from ir.registry import MODULE, kind


@kind(*MODULE)
class Rfft(Op):
    """Fourier transform of a real signal along `dim`, cut or zero-padded to `n`: two parts, n // 2 + 1 long."""

    signal: In
    dim: Dim
    n: Dim | None
    out_re: Out
    out_im: Out


@kind(*MODULE)
class IRfft(Op):
    """The real signal of length `n` along `dim` whose transform is (input_re, input_im)."""

    input_re: In
    input_im: In
    dim: Dim
    n: Dim | None
    out_signal: Out


@kind(*MODULE)
class CtcLoss(Op):
    """Connectionist temporal classification: log_probs (T, N, C) · targets (N, S) · lengths (N,) -> out (N,)."""

    log_probs: In
    targets: In
    input_lengths: In
    target_lengths: In
    blank: Dim
    out: Out


@kind(*MODULE)
class CtcLossBackward(Op):
    """Gradient of `CtcLoss` by log_probs, given grad_loss (N,)."""

    log_probs: In
    targets: In
    input_lengths: In
    target_lengths: In
    grad_loss: In
    blank: Dim
    out: Out
