"""Transforms as sums, and the CTC loss by listing every path."""

import math
from itertools import groupby, product

import numpy as np


def rfft(signal: np.ndarray, dim: int, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Each bin as a sum over the samples."""
    x = np.moveaxis(signal.astype(np.float64), dim, -1)
    length = x.shape[-1] if n is None else n
    bins = np.zeros((*x.shape[:-1], length // 2 + 1), complex)
    for k in range(bins.shape[-1]):
        for t in range(min(length, x.shape[-1])):
            bins[..., k] += x[..., t] * np.exp(-2j * math.pi * (k * t % length) / length)
    bins = np.moveaxis(bins, -1, dim)
    return bins.real, bins.imag


def irfft(re: np.ndarray, im: np.ndarray, dim: int, n: int | None = None) -> np.ndarray:
    """Each sample as a sum over the bins and their mirror images."""
    x, y = (np.moveaxis(v.astype(np.float64), dim, -1) for v in (re, im))
    length = 2 * (x.shape[-1] - 1) if n is None else n
    out = np.zeros((*x.shape[:-1], length))
    for t in range(length):
        for k in range(min(length // 2 + 1, x.shape[-1])):
            angle = 2 * math.pi * (k * t % length) / length
            is_single = k == 0 or 2 * k == length
            part = x[..., k] * math.cos(angle) - (0 if is_single else y[..., k] * math.sin(angle))
            out[..., t] += part * (1 if is_single else 2) / length
    return np.moveaxis(out, -1, dim)


def ctc_paths(log_probs: np.ndarray, target: tuple[int, ...], num_frames: int, blank: int) -> tuple[float, np.ndarray]:
    """Sum over every path of one sample (T, C) that collapses to `target`: likelihood, and that of each (t, class)."""
    frames, classes = log_probs.shape
    total, share = 0.0, np.zeros((frames, classes))
    for path in product(range(classes), repeat=num_frames):
        if tuple(c for c, _ in groupby(path) if c != blank) != target:
            continue
        likelihood = math.exp(sum(float(log_probs[t, c]) for t, c in enumerate(path)))
        total += likelihood
        for t, c in enumerate(path):
            share[t, c] += likelihood
    return total, share


def ctc_loss(
    log_probs: np.ndarray, targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, *, blank: int
) -> np.ndarray:
    """Negative log likelihood of each sample."""
    out = np.zeros(log_probs.shape[1])
    for n in range(out.size):
        target = tuple(int(c) for c in targets[n, : target_lengths[n]])
        total, _ = ctc_paths(log_probs[:, n], target, max(int(input_lengths[n]), 1), blank)
        out[n] = -math.log(total) if total else math.inf
    return out


def ctc_loss_backward(
    log_probs: np.ndarray,
    targets: np.ndarray,
    input_lengths: np.ndarray,
    target_lengths: np.ndarray,
    grad: np.ndarray,
    *,
    blank: int,
) -> np.ndarray:
    """Probability minus posterior of each class, times the gradient of the loss."""
    out = np.zeros(log_probs.shape)
    for n in range(log_probs.shape[1]):
        target = tuple(int(c) for c in targets[n, : target_lengths[n]])
        total, share = ctc_paths(log_probs[:, n], target, max(int(input_lengths[n]), 1), blank)
        live = slice(0, int(input_lengths[n]) if total else 0)
        if total:
            out[live, n] = (np.exp(log_probs[live, n].astype(np.float64)) - share[live] / total) * float(grad[n])
    return out
