"""Lowerings of `ir.meganeura.ops.reduce`."""

import jax.numpy as jnp
from jax import lax

from ir.meganeura.ops.reduce import BceLoss, CrossEntropyLoss, LogSoftmax, MeanAll, Softmax, SumAll, SumRows
from jax_backend.lowering import lower
from jax_backend.ops._shared import Array, const
from jax_backend.ops.meganeura._shared import declared, two_dims, viewed

BCE_MARGIN = 1e-7
"""Predictions are held this far from 0 and 1, in f32: below 0.99999988."""


@lower(SumAll)
@declared
def sum_all(op: SumAll, x: Array) -> Array:
    """The sum of all elements."""
    return jnp.sum(x)


@lower(MeanAll)
@declared
def mean_all(op: MeanAll, x: Array) -> Array:
    """The mean of all elements; of none it is NaN."""
    return jnp.sum(x) / const(x.size, x)


@lower(SumRows)
@declared
def sum_rows(op: SumRows, x: Array) -> Array:
    """Column sums."""
    return jnp.sum(two_dims(x, "SumRows.x"), axis=0)


def _shifted(x: Array) -> Array:
    """Each row minus its maximum, or minus the lowest finite number where it holds -inf alone.

    The shift does not change a softmax, so no gradient need go through the maximum.
    """
    lowest = float(jnp.finfo(x.dtype).min)
    top = jnp.max(x, axis=-1, keepdims=True, initial=lowest)
    return x - lax.stop_gradient(top)


def log_softmax_of(x: Array) -> Array:
    """The formula x - log(sum(exp(x))) along the last axis, without overflow."""
    shifted = _shifted(x)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))


@lower(Softmax)
@declared
def softmax(op: Softmax, x: Array) -> Array:
    """Powers over their sum; a row of -inf gives zeros, as no denominator is below the smallest normal number."""
    powers = jnp.exp(_shifted(two_dims(x, "Softmax.x")))
    return powers / jnp.maximum(jnp.sum(powers, axis=-1, keepdims=True), const(float(jnp.finfo(x.dtype).tiny), x))


@lower(LogSoftmax)
@declared
def log_softmax(op: LogSoftmax, x: Array) -> Array:
    """Logarithm of the softmax."""
    return log_softmax_of(two_dims(x, "LogSoftmax.x"))


@lower(CrossEntropyLoss)
@declared
def cross_entropy_loss(op: CrossEntropyLoss, logits: Array, labels: Array) -> Array:
    """Minus the weighted log-probabilities, per row."""
    labels = viewed(labels, two_dims(logits, "CrossEntropyLoss.logits").shape, "CrossEntropyLoss.labels")
    return -jnp.sum(labels * log_softmax_of(logits)) / const(logits.shape[0], logits)


@lower(BceLoss)
@declared
def bce_loss(op: BceLoss, pred: Array, labels: Array) -> Array:
    """Mean over all elements, whatever their shape."""
    labels = viewed(labels, pred.shape, "BceLoss.labels")
    one, margin = const(1, pred), const(BCE_MARGIN, pred)
    p = jnp.clip(pred, margin, one - margin)
    return -jnp.sum(labels * jnp.log(p) + (one - labels) * jnp.log(one - p)) / const(pred.size, pred)
