"""Rows of `ir.meganeura.ops.reduce`. References: the formulas in float64, and numbers worked by hand."""

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from tests.opcase import EXACT, BadCase, OpCase, bad, case, t
from tests.reference.meganeura import float64, log_softmax, softmax, waves

NAN, INF = np.nan, np.inf
MATRIX, WAVES = t(F32, [[1, 2, 3], [4, 5, -6]]), t(F32, 3 * waves(5, 7))
LOGITS, NO_ROWS = t(F32, [[1, 2, 3], [0, 0, 0]]), t(F32, [], (0, 3))

CASES: list[OpCase] = [
    case("sumall", mg.SumAll, MATRIX, want=t(F32, [9]), tol=EXACT),
    case("sumall-nan", mg.SumAll, t(F32, [1, NAN]), want=t(F32, [NAN])),
    case("sumall-empty", mg.SumAll, t(F32, [], (2, 0)), want=t(F32, [0])),
    case("meanall", mg.MeanAll, MATRIX, want=t(F32, [1.5]), tol=EXACT),
    case("meanall-of-nothing", mg.MeanAll, t(F32, [], (2, 0)), want=t(F32, [NAN])),
    case("sumrows", mg.SumRows, MATRIX, want=t(F32, [5, 7, -3]), tol=EXACT),
    case("sumrows-as-a-row", mg.SumRows, MATRIX, want=t(F32, [[5, 7, -3]]), tol=EXACT),
    case("sumrows-empty", mg.SumRows, NO_ROWS, want=t(F32, [0, 0, 0])),
    case("softmax", mg.Softmax, WAVES, want=float64(softmax)),
    case("softmax-large", mg.Softmax, t(F32, [[1000, 1000, -1000]]), want=t(F32, [[0.5, 0.5, 0]])),
    case("softmax-hidden", mg.Softmax, t(F32, [[0, -INF, 0], [-INF] * 3]), want=t(F32, [[0.5, 0, 0.5], [0, 0, 0]])),
    case("softmax-nan", mg.Softmax, t(F32, [[1, NAN], [2, 2]]), want=t(F32, [[NAN, NAN], [0.5, 0.5]])),
    case("softmax-no-columns", mg.Softmax, t(F32, [], (2, 0)), want=t(F32, [], (2, 0))),
    case("softmax-no-rows", mg.Softmax, NO_ROWS, want=NO_ROWS),
    case("logsoftmax", mg.LogSoftmax, WAVES, want=float64(log_softmax)),
    case("logsoftmax-underflow", mg.LogSoftmax, t(F32, [[0, -200]]), want=t(F32, [[0, -200]])),
    case("logsoftmax-empty", mg.LogSoftmax, t(F32, [], (2, 0)), want=t(F32, [], (2, 0))),
    case(
        "crossentropyloss",
        mg.CrossEntropyLoss,
        LOGITS,
        t(F32, [[0, 0, 1], [0.5, 0.5, 0]]),
        want=t(F32, [0.75310892]),
    ),
    case(
        "crossentropyloss-weights",
        mg.CrossEntropyLoss,
        LOGITS,
        t(F32, [[2, 0.2, -1.5], [0, 0, 1]]),
        want=float64(lambda x, y: np.array([-(y * log_softmax(x)).sum() / 2])),
    ),
    case("crossentropyloss-no-rows", mg.CrossEntropyLoss, NO_ROWS, NO_ROWS, want=t(F32, [NAN])),
    case("bceloss", mg.BceLoss, t(F32, [0.9, 0.1, 0.8, 0.2]), t(F32, [1, 0, 1, 0]), want=t(F32, [0.1642520])),
    case("bceloss-clamped", mg.BceLoss, t(F32, [0, 1, 0.5, 0.5]), t(F32, [0, 1, 1, 0]), want=t(F32, [0.3465737])),
    case(
        "bceloss-wrong-and-sure",
        mg.BceLoss,
        t(F32, [[1], [0]]),
        t(F32, [[0], [1]]),
        want=t(F32, [-(np.log(np.float64(np.float32(1e-7))) + np.log(2.0**-23)) / 2]),
    ),
]

SIX, ONE = t(F32, [1] * 6), t(F32, [0])

BAD_CASES: list[BadCase] = [
    bad("sumall-out", mg.SumAll, SIX, out=SIX, error=ShapeError, match=r"SumAll\.out: declared shape \(6,\), computed"),
    bad("meanall-out", mg.MeanAll, SIX, out=SIX, error=ShapeError, match=r"MeanAll\.out: declared shape \(6,\)"),
    bad("sumrows-flat", mg.SumRows, SIX, out=ONE, error=ShapeError, match=r"SumRows\.x: expected two axes"),
    bad("softmax-flat", mg.Softmax, SIX, out=SIX, error=ShapeError, match=r"Softmax\.x: expected two axes"),
    bad("logsoftmax-flat", mg.LogSoftmax, SIX, out=SIX, error=ShapeError, match=r"LogSoftmax\.x: expected two axes"),
    bad(
        "crossentropyloss-labels", mg.CrossEntropyLoss, MATRIX, ONE, out=ONE, error=ShapeError, match=r"labels: expect"
    ),
    bad("bceloss-labels", mg.BceLoss, SIX, ONE, out=ONE, error=ShapeError, match=r"BceLoss\.labels: expected the el"),
]
