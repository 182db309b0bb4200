"""Reductions, softmax and losses. Source: meganeura `graph.rs`."""

from ir.meganeura.ops.records import Unary, node_kind
from ir.op import In, Op, Out


@node_kind
class SumAll(Unary):
    """Sum of all elements -> out (1,)."""


@node_kind
class MeanAll(Unary):
    """Mean of all elements -> out (1,)."""


@node_kind
class SumRows(Unary):
    """Column sums. x (M, N) -> out (N,), or (1, N) in the gradient of a broadcast sum."""


@node_kind
class Softmax(Unary):
    """Softmax over the last axis. x (M, N)."""


@node_kind
class LogSoftmax(Unary):
    """Logarithm of the softmax over the last axis. x (M, N). Meganeura 0.2 leaves the logarithm out."""


@node_kind
class CrossEntropyLoss(Op):
    """-sum(labels * log_softmax(logits)) / B -> out (1,).

    logits (B, V) · labels (B, V): weights in F32, not indices; their rows need not sum to 1.
    """

    logits: In
    labels: In
    out: Out


@node_kind
class BceLoss(Op):
    """Mean of -(y ln p + (1 - y) ln(1 - p)) with p = pred held within 1e-7 and 1 - 1e-7 in f32 -> out (1,)."""

    pred: In
    labels: In
    out: Out
