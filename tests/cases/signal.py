"""Fourier transforms of real signals, the CTC loss, and the custom operations that Burn 0.22.1 sends for the former."""

from functools import partial
from typing import Any

import numpy as np

import ir
from ir import BF16, F16, F32, F64, I8, I32, I64, CtcLoss, CtcLossBackward, Custom, IRfft, Rfft
from tests.opcase import OpCase, Tolerance, Typed, case, t
from tests.reference import signal as reference

NAN, INF = float("nan"), float("inf")
SUMS = Tolerance(1e-5, 2e-6)
"""A transform in float32 of up to 13 samples of size 1."""


def wave(dtype: ir.DType, *shape: int, step: float = 0.7) -> Typed:
    """Numbers without a pattern that an axis could share."""
    places = np.arange(int(np.prod(shape)), dtype=np.float64)
    return t(dtype, np.sin(step * (places * places % 211 + 1)), shape)


def forward(id: str, x: Typed, dim: int = 0, n: int | None = None, want: Any = None) -> OpCase:
    """A row of Rfft."""
    made = want or partial(reference.rfft, dim=dim, n=n)
    return case(f"rfft-{id}", Rfft, x, want=made, dim=dim, n=n, tol=SUMS if x.dtype is F32 else None)


def inverse(id: str, re: Typed, im: Typed, dim: int = 0, n: int | None = None, want: Any = None) -> OpCase:
    """A row of IRfft."""
    made = want or partial(reference.irfft, dim=dim, n=n)
    return case(f"irfft-{id}", IRfft, re, im, want=made, dim=dim, n=n, tol=SUMS if re.dtype is F32 else None)


def f(*values: float) -> Typed:
    return t(F32, values)


RFFT = [
    forward("of-ones", f(1, 1, 1, 1), want=[f(4, 0, 0), f(0, 0, 0)]),
    forward("of-two", f(1, -1), want=[f(0, 2), f(0, 0)]),
    forward("sign-of-the-imaginary-part", f(0, 1, 0, -1), want=[f(0, 0, 0), f(0, -2, 0)]),
    forward("padded-to-n", f(1, 0, 0, 0), n=8, want=[f(1, 1, 1, 1, 1), f(0, 0, 0, 0, 0)]),
    forward("cut-to-n", f(1, 0, 0, 0, 99, 99, 99, 99), n=4, want=[f(1, 1, 1), f(0, 0, 0)]),
    forward("first-axis", wave(F32, 8, 3)),
    forward("middle-axis-odd-length", wave(F32, 2, 5, 3), dim=1),
    forward("last-axis-prime-length", wave(F32, 2, 13), dim=1),
    forward("odd-n", wave(F32, 6, 2), n=7),
    forward("single-sample", f(3), want=[f(3), f(0)]),
    forward("f64", wave(F64, 3, 8), dim=1),
    forward("f16", wave(F16, 8)),
    forward("bf16-rounds-once", wave(BF16, 2, 6), dim=1),
    forward("no-batch", t(F32, np.zeros((0, 4))), dim=1, want=[t(F32, np.zeros((0, 3)))] * 2),
]

IRFFT = [
    inverse("of-a-constant", f(4, 0, 0), f(0, 0, 0), want=f(1, 1, 1, 1)),
    inverse("sign-of-the-imaginary-part", f(0, 0, 0), f(0, -2, 0), want=f(0, 1, 0, -1)),
    inverse("imaginary-parts-of-the-ends-do-not-count", f(4, 0, 0), f(7, 0, 9), want=f(1, 1, 1, 1)),
    inverse("nan-in-an-imaginary-part-that-does-not-count", f(4, 0, 0), f(NAN, 0, NAN), want=f(1, 1, 1, 1)),
    inverse("odd-n-has-no-middle-bin", wave(F32, 4), wave(F32, 4, step=0.3), n=7),
    inverse("bins-padded-to-n", wave(F32, 3), wave(F32, 3, step=0.3), n=10),
    inverse("bins-cut-to-n", wave(F32, 5, 2), wave(F32, 5, 2, step=0.3), n=4),
    inverse("middle-axis", wave(F32, 2, 4, 3), wave(F32, 2, 4, 3, step=0.3), dim=1),
    inverse("n-1-is-bin-0", f(3, 5), f(7, 9), n=1, want=f(3)),
    inverse("single-bin-gives-nothing", f(3), f(0), want=f()),
    inverse("f64", wave(F64, 2, 5), wave(F64, 2, 5, step=0.3), dim=1),
    inverse("f16", wave(F16, 5), wave(F16, 5, step=0.3)),
    inverse("bf16", wave(BF16, 5), wave(BF16, 5, step=0.3)),
]


def log_softmax(dtype: ir.DType = F32, frames: int = 5, batch: int = 3, classes: int = 4) -> Typed:
    """The logits sin(0.1 * (7t + 13n + 3c)) as log probabilities (T, N, C)."""
    places = np.indices((frames, batch, classes))
    logits = np.sin(0.1 * np.tensordot([7, 13, 3], places, 1))
    return t(dtype, logits - np.log(np.exp(logits).sum(-1, keepdims=True)))


def uniform(frames: int, classes: int) -> Typed:
    return t(F32, np.full((frames, 1, classes), -np.log(classes)))


TARGETS = t(I64, [[1, 2, 0], [1, 0, 0], [3, 2, 1]])
LENGTHS = t(I64, [2, 1, 3])


def loss(
    id: str, log_probs: Typed, targets: Typed, frames: Typed, lengths: Typed, blank: int = 0, want: Any = None
) -> OpCase:
    """A row of CtcLoss."""
    made = want or partial(reference.ctc_loss, blank=blank)
    return case(f"ctc-{id}", CtcLoss, log_probs, targets, frames, lengths, want=made, blank=blank)


def gradient(
    id: str,
    log_probs: Typed,
    targets: Typed,
    frames: Typed,
    lengths: Typed,
    grad: Typed,
    blank: int = 0,
    want: Any = None,
) -> OpCase:
    """A row of CtcLossBackward."""
    made = want or partial(reference.ctc_loss_backward, blank=blank)
    return case(
        f"ctc_backward-{id}", CtcLossBackward, log_probs, targets, frames, lengths, grad, want=made, blank=blank
    )


def i(*values: int) -> Typed:
    return t(I64, values)


CTC = [
    loss("full-length", log_softmax(), TARGETS, i(5, 5, 5), LENGTHS, want=f(3.5236573, 3.4953144, 4.2626780)),
    loss("input-lengths", log_softmax(), TARGETS, i(5, 3, 4), LENGTHS, want=f(3.5236573, 1.8964005, 4.2326374)),
    loss("every-path", log_softmax(frames=4), TARGETS, i(4, 4, 4), LENGTHS),
    loss("blank-is-the-last-class", log_softmax(), t(I64, [[1, 2, 0], [1, 0, 0], [2, 2, 1]]), i(5, 4, 5), LENGTHS, 3),
    loss("empty-target", uniform(3, 2), t(I64, [[1]]), i(3), i(0), want=f(3 * np.log(2))),
    loss("targets-without-places", uniform(3, 2), t(I64, np.zeros((1, 0))), i(3), i(0), want=f(3 * np.log(2))),
    loss("repeated-label-needs-a-blank", uniform(3, 2), t(I64, [[1, 1]]), i(3), i(2), want=f(3 * np.log(2))),
    loss("unreachable-is-infinite", uniform(2, 3), t(I64, [[1, 1]]), i(2), i(2), want=f(INF)),
    loss("input-length-0-acts-as-1", uniform(3, 2), t(I64, [[1]]), i(0), i(1), want=f(np.log(2))),
    loss("input-length-0-of-two-labels-is-infinite", uniform(3, 3), t(I64, [[1, 2]]), i(0), i(2), want=f(INF)),
    loss("certain-path-costs-0", t(F32, [[[0, -INF]], [[-INF, 0]]]), t(I64, [[1]]), i(2), i(1), want=f(0)),
    loss("lengths-of-i32", log_softmax(), t(I32, TARGETS.array), t(I32, [5, 3, 4]), t(I32, [2, 1, 3])),
    loss("i8-lengths-do-not-overflow", uniform(90, 2), t(I8, np.ones((1, 70))), t(I8, [90]), t(I8, [70]), want=f(INF)),
    loss("f64", log_softmax(F64), TARGETS, i(5, 3, 4), LENGTHS),
    loss("f16", log_softmax(F16), TARGETS, i(5, 3, 4), LENGTHS),
    loss("bf16", log_softmax(BF16), TARGETS, i(5, 3, 4), LENGTHS),
]

CTC_BACKWARD = [
    gradient("full-length", log_softmax(), TARGETS, i(5, 5, 5), LENGTHS, f(1, 1, 1)),
    gradient("grad-and-input-lengths", log_softmax(), TARGETS, i(5, 3, 4), LENGTHS, f(0.5, -2, 3)),
    gradient("first-row", log_softmax(frames=5, batch=1), t(I64, [[1, 2, 0]]), i(5), i(2), f(1)),
    gradient("unreachable-gives-0", uniform(2, 3), t(I64, [[1, 1]]), i(2), i(2), f(1),
             want=t(F32, np.zeros((2, 1, 3)))),
    gradient("unreachable-and-infinite-grad-gives-0", uniform(2, 3), t(I64, [[1, 1]]), i(2), i(2), f(INF),
             want=t(F32, np.zeros((2, 1, 3)))),
    gradient("input-length-0-gives-0", uniform(2, 2), t(I64, [[1]]), i(0), i(1), f(1),
             want=t(F32, np.zeros((2, 1, 2)))),
    gradient("empty-target", log_softmax(batch=1), t(I64, np.zeros((1, 0))), i(4), i(0), f(1)),
    gradient("certain-path-gives-0", t(F32, [[[0, -INF]], [[-INF, 0]]]), t(I64, [[1]]), i(2), i(1), f(1),
             want=t(F32, np.zeros((2, 1, 2)))),
    gradient("f64", log_softmax(F64), TARGETS, i(5, 3, 4), LENGTHS, t(F64, [1, 2, 3]), 0),
    gradient("f16", log_softmax(F16), TARGETS, i(5, 3, 4), LENGTHS, t(F16, [1, 2, 3]), 0),
    gradient("blank-is-the-last-class", log_softmax(), t(I64, [[1, 2, 0], [1, 0, 0], [2, 2, 1]]), i(5, 4, 5), LENGTHS,
             f(1, 1, 1), 3),
]  # fmt: skip


def custom(
    id: str, name: str, inputs: list[Typed], scalars: list[Any], want: list[Typed] | Any, tol: Any = SUMS
) -> OpCase:
    """A row of Custom."""
    numbers = tuple(ir.ScalarIr(Bool=s) if isinstance(s, bool) else ir.ScalarIr(UInt=s) for s in scalars)
    return case(f"custom-{id}", Custom, inputs, want=want, id=name, scalars=numbers, tol=tol)


CUSTOM = [
    custom("rfft-without-n", "signal::rfft", [f(0, 1, 0, -1)], [0, False, 3], [f(0, 0, 0), f(0, -2, 0)]),
    custom("rfft-with-n", "signal::rfft", [wave(F32, 2, 5)], [1, True, 8], partial(reference.rfft, dim=1, n=8)),
    custom("irfft-without-n", "signal::irfft", [f(4, 0, 0), f(9, 0, 9)], [0, False, 0], [f(1, 1, 1, 1)]),
    custom("irfft-with-n", "signal::irfft", [wave(F32, 4), wave(F32, 4, step=0.2)], [0, True, 7],
           partial(reference.irfft, dim=0, n=7)),
]  # fmt: skip

CASES = [*RFFT, *IRFFT, *CTC, *CTC_BACKWARD, *CUSTOM]
