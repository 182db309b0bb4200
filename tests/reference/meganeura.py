"""Formulas in NumPy and float64 that tables of several families use. Not one calls the code under test."""

from collections.abc import Callable

import numpy as np

Function = Callable[..., np.ndarray]


def float64(function: Function) -> Function:
    """A reference on arrays that go through float64."""
    return lambda *arrays: function(*(np.asarray(a, np.float64) if a.dtype.kind == "f" else a for a in arrays))


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    """The argument times its logistic function."""
    return x * logistic(x)


def dsilu(x: np.ndarray) -> np.ndarray:
    """Derivative of silu."""
    s = logistic(x)
    return s + x * s * (1 - s)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh form of gelu."""
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Along the last axis, shifted by its maximum."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def softmax(x: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    return np.exp(log_softmax(x))


def rope(x: np.ndarray, theta: float, offset: int, head_dim: int, sign: float = 1.0) -> np.ndarray:
    """Rotation of each pair by loops over rows, heads and columns."""
    out = np.zeros(x.shape)
    half = head_dim // 2
    for row in range(x.shape[0]):
        for start in range(0, x.shape[1], head_dim):
            for d in range(half):
                angle = (row + offset) * theta ** (-2 * d / head_dim)
                c, s = np.cos(angle), sign * np.sin(angle)
                left, right = x[row, start + d], x[row, start + d + half]
                out[row, start + d] = left * c - right * s
                out[row, start + d + half] = left * s + right * c
    return out


class Attention:
    """softmax(q k^T / sqrt(width)) v by loops over heads and rows; `sees(i, t)` says whether row i sees row t of k."""

    def __init__(self, heads: int, kv_heads: int, width: int, sees: Callable[[int, int], bool]) -> None:
        self.heads, self.kv_heads, self.width, self.sees = heads, kv_heads, width, sees

    def _columns(self, head: int) -> tuple[slice, slice]:
        kv = head // (self.heads // self.kv_heads)
        return slice(head * self.width, (head + 1) * self.width), slice(kv * self.width, (kv + 1) * self.width)

    def weights(self, head: int, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        """Softmax of the visible scores of one head, 0 where hidden."""
        mine, theirs = self._columns(head)
        weights = np.zeros((len(q), len(k)))
        for i in range(len(q)):
            visible = [t for t in range(len(k)) if self.sees(i, t)]
            weights[i, visible] = softmax(k[visible, theirs] @ q[i, mine] / np.sqrt(self.width))
        return weights

    def __call__(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The output, of the shape of q."""
        out = np.zeros(q.shape)
        for head in range(self.heads):
            mine, theirs = self._columns(head)
            out[:, mine] = self.weights(head, q, k) @ v[:, theirs]
        return out

    def grads(self, grad_out: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
        """Gradients for q, k and v: dS = P (dO v^T - D), D the row sums of dO O."""
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        out = self(q, k, v)
        for head in range(self.heads):
            mine, theirs = self._columns(head)
            p = self.weights(head, q, k)
            ds = p * (grad_out[:, mine] @ v[:, theirs].T - (grad_out[:, mine] * out[:, mine]).sum(1, keepdims=True))
            ds /= np.sqrt(self.width)
            dq[:, mine] = ds @ k[:, theirs]
            dk[:, theirs] += ds.T @ q[:, mine]
            dv[:, theirs] += p.T @ grad_out[:, mine]
        return dq, dk, dv


def correlate(x: np.ndarray, kernel: np.ndarray, stride: int, padding: tuple[int, int]) -> np.ndarray:
    """Cross-correlation of (N, C, H, W) with (O, C, kH, kW) by loops over places."""
    (ph, pw), (kh, kw) = padding, kernel.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    count = [(n - k) // stride + 1 for n, k in zip(padded.shape[2:], (kh, kw), strict=True)]
    out = np.zeros((len(x), len(kernel), *count))
    for i, j in np.ndindex(*count):
        window = padded[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
        out[:, :, i, j] = np.einsum("nchw,ochw->no", window, kernel)
    return out


def correlate_grads(
    grad: np.ndarray, x: np.ndarray, kernel: np.ndarray, stride: int, padding: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of `correlate` for x and kernel, each product sent back where it came from."""
    (ph, pw), (kh, kw) = padding, kernel.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    dx, dk = np.zeros(padded.shape), np.zeros(kernel.shape)
    for i, j in np.ndindex(*grad.shape[2:]):
        place = np.s_[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
        dx[place] += np.einsum("no,ochw->nchw", grad[:, :, i, j], kernel)
        dk += np.einsum("no,nchw->ochw", grad[:, :, i, j], padded[place])
    return dx[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]], dk


def waves(*shape: int, step: float = 0.5, start: float = 0.0) -> np.ndarray:
    """sin(start + step i) over the flat index i: different numbers everywhere, no random state."""
    return np.sin(start + step * np.arange(np.prod(shape, dtype=int))).reshape(shape)
