"""Attention and normalisation, head by head and query by query."""

import math
from itertools import product

import numpy as np


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    causal: bool = False,
) -> np.ndarray:
    """One query at a time, over the keys it sees."""
    batch, heads, num_queries, width = q.shape
    num_keys = k.shape[2]
    full = (batch, heads, num_queries, num_keys)
    hidden = np.zeros(full, bool) if mask is None else np.broadcast_to(mask, full)
    added = np.zeros(full) if bias is None else np.broadcast_to(bias.astype(np.float64), full)
    out = np.zeros((batch, heads, num_queries, v.shape[3]))
    for b, h, i in product(range(batch), range(heads), range(num_queries)):
        kv_head = h // (heads // k.shape[1])
        scores = np.full(num_keys, -np.inf)
        for j in range(num_keys):
            if hidden[b, h, i, j] or (causal and j - i > num_keys - num_queries):
                continue
            score = math.fsum(float(a) * float(c) for a, c in zip(q[b, h, i], k[b, kv_head, j], strict=True))
            score *= 1 / math.sqrt(width) if scale is None else scale
            scores[j] = (score if softcap is None else softcap * math.tanh(score / softcap)) + added[b, h, i, j]
        top = scores.max(initial=-np.inf)
        if top == -np.inf:
            continue
        weights = np.exp(scores - top)
        for j in range(num_keys):
            out[b, h, i] += weights[j] / weights.sum() * v[b, kv_head, j].astype(np.float64)
    return out


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, epsilon: float) -> np.ndarray:
    """Row by row."""
    rows = x.astype(np.float64).reshape(-1, x.shape[-1])
    shift = np.zeros_like(gamma, np.float64) if beta is None else beta.astype(np.float64)
    out = [(r - r.mean()) / math.sqrt(((r - r.mean()) ** 2).mean() + epsilon) * gamma + shift for r in rows]
    return np.array(out).reshape(x.shape)


def batch_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray, epsilon: float
) -> np.ndarray:
    """Channel by channel."""
    out = np.empty(x.shape)
    for c in range(x.shape[1]):
        spread = math.sqrt(float(variance[c]) + epsilon)
        out[:, c] = (x[:, c].astype(np.float64) - float(mean[c])) / spread * float(gamma[c]) + float(beta[c])
    return out
