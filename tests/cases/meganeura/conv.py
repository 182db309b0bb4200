"""Rows of `ir.meganeura.ops.conv`. References: loops over places in float64, and numbers worked by hand."""

from typing import Any

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from tests.opcase import EXACT, BadCase, OpCase, Tolerance, bad, case, t
from tests.reference.meganeura import correlate, correlate_grads, waves

NAN, INF, LOWEST = np.nan, np.inf, float(np.finfo(np.float32).min)
SUMS = Tolerance(1e-5, 1e-5)


def conv(ci: int, h: int, w: int, co: int, kh: int, kw: int, stride: int, ph: int, pw: int) -> dict[str, int]:
    """The attributes of a convolution."""
    names = ("in_channels", "in_h", "in_w", "out_channels", "kernel_h", "kernel_w", "stride", "padding_h", "padding_w")
    return dict(zip(names, (ci, h, w, co, kh, kw, stride, ph, pw), strict=True))


CONVS = {
    "plain": (2, conv(2, 5, 4, 3, 3, 2, 1, 0, 0)),
    "padded": (1, conv(3, 4, 5, 2, 3, 3, 1, 1, 2)),
    "strided-drops-the-rest": (2, conv(2, 6, 7, 3, 3, 2, 2, 0, 1)),
    "pointwise": (3, conv(5, 2, 3, 4, 1, 1, 1, 0, 0)),
    "one-dimensional": (1, conv(2, 7, 1, 3, 3, 1, 2, 1, 0)),
    "stride-that-aborted-xla": (3, conv(1, 8, 5, 2, 2, 3, 2, 1, 0)),
    "stride-beyond-kernel": (1, conv(1, 7, 7, 2, 2, 2, 3, 0, 0)),
}


def conv_rows() -> list[OpCase]:
    """Each convolution and its gradients."""
    found: list[OpCase] = []
    for name, (batch, a) in CONVS.items():
        x = waves(batch, a["in_channels"], a["in_h"], a["in_w"], step=0.7)
        kernel = waves(a["out_channels"], a["in_channels"], a["kernel_h"], a["kernel_w"], step=0.9, start=1.0)
        how = a["stride"], (a["padding_h"], a["padding_w"])
        out = correlate(x, kernel, *how)
        grad = waves(*out.shape, step=0.3)
        dx, dk = correlate_grads(grad, x, kernel, *how)
        flat_x, flat_k, flat_grad = (t(F32, array.reshape(-1)) for array in (x, kernel, grad))
        found += [
            case(f"conv2d-{name}", mg.Conv2d, flat_x, flat_k, want=t(F32, out.reshape(-1)), tol=SUMS, **a),
            case(
                f"conv2dgradinput-{name}",
                mg.Conv2dGradInput,
                flat_grad,
                flat_k,
                want=t(F32, dx.reshape(-1)),
                tol=SUMS,
                **a,
            ),
            case(
                f"conv2dgradweight-{name}",
                mg.Conv2dGradWeight,
                flat_grad,
                flat_x,
                want=t(F32, dk.reshape(-1)),
                tol=SUMS,
                **a,
            ),
        ]
    return found


ONES_4, ONES_3 = t(F32, [1] * 16), t(F32, [1] * 9)
NONE = t(F32, [])


def pool(h: int, w: int, kernel: tuple[int, int], stride: int, padding: int) -> dict[str, Any]:
    """The attributes of a pool over two channels."""
    return {
        "channels": 2,
        "in_h": h,
        "in_w": w,
        "kernel_h": kernel[0],
        "kernel_w": kernel[1],
        "stride": stride,
        "padding": padding,
    }


CHANNELS: dict[str, int] = {"channels_a": 1, "channels_b": 2, "spatial": 2}
A, B = t(F32, [1, 2, 11, 12]), t(F32, [3, 4, 5, 6, 13, 14, 15, 16])
BOTH = t(F32, [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16])
SMALL = t(F32, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
"""Two channels of 2 by 3."""
LARGE = t(F32, np.kron(SMALL.array.reshape(2, 2, 3), np.ones((1, 2, 2))).reshape(-1))
IMAGE: dict[str, int] = {"channels": 2, "in_h": 2, "in_w": 3}

CASES: list[OpCase] = [
    *conv_rows(),
    case("conv2d-ones", mg.Conv2d, ONES_4, ONES_3, want=t(F32, [9] * 4), tol=EXACT, **conv(1, 4, 4, 1, 3, 3, 1, 0, 0)),
    case(
        "conv2d-ones-padded",
        mg.Conv2d,
        ONES_4,
        ONES_3,
        want=t(F32, [4, 6, 6, 4, 6, 9, 9, 6, 6, 9, 9, 6, 4, 6, 6, 4]),
        tol=EXACT,
        **conv(1, 4, 4, 1, 3, 3, 1, 1, 1),
    ),
    case(
        "conv2d-does-not-flip",
        mg.Conv2d,
        t(F32, [1, 10, 100]),
        t(F32, [1, 2]),
        want=t(F32, [21, 210]),
        tol=EXACT,
        **conv(1, 1, 3, 1, 1, 2, 1, 0, 0),
    ),
    case("conv2d-no-images", mg.Conv2d, NONE, ONES_3, want=NONE, **conv(1, 4, 4, 1, 3, 3, 1, 0, 0)),
    case("conv2dgradinput-no-images", mg.Conv2dGradInput, NONE, ONES_3, want=NONE, **conv(1, 4, 4, 1, 3, 3, 1, 0, 0)),
    case(
        "conv2dgradweight-no-images",
        mg.Conv2dGradWeight,
        NONE,
        NONE,
        want=t(F32, [0] * 9),
        **conv(1, 4, 4, 1, 3, 3, 1, 0, 0),
    ),
    case(
        "conv2dgradweight-by-hand",
        mg.Conv2dGradWeight,
        t(F32, [1] * 4),
        t(F32, 0.1 * np.arange(1, 17)),
        want=t(F32, [1.4, 1.8, 2.2, 3.0, 3.4, 3.8, 4.6, 5.0, 5.4]),
        **conv(1, 4, 4, 1, 3, 3, 1, 0, 0),
    ),
    case(
        "maxpool2d",
        mg.MaxPool2d,
        t(F32, [*range(1, 13), *range(0, -12, -1)]),
        want=t(F32, [6, 7, 8, 10, 11, 12, 0, -1, -2, -4, -5, -6]),
        tol=EXACT,
        **pool(3, 4, (2, 2), 1, 0),
    ),
    case(
        "maxpool2d-strided-drops-the-rest",
        mg.MaxPool2d,
        t(F32, [*range(1, 16), *range(0, -15, -1)]),
        want=t(F32, [7, 9, 0, -2]),
        tol=EXACT,
        **pool(3, 5, (2, 2), 2, 0),
    ),
    case(
        "maxpool2d-padding-never-wins",
        mg.MaxPool2d,
        t(F32, [-1, -2, -3, -4, -INF, 5, NAN, 7]),
        want=t(F32, [-1, -2, -3, -4, LOWEST, 5, NAN, 7]),
        tol=EXACT,
        **pool(2, 2, (3, 3), 2, 1) | {"kernel_h": 2, "kernel_w": 2},
    ),
    case(
        "maxpool2d-window-of-padding",
        mg.MaxPool2d,
        t(F32, [3, -4]),
        want=t(F32, [*[LOWEST] * 4, 3, *[LOWEST] * 8, -4, *[LOWEST] * 4]),
        tol=EXACT,
        **pool(1, 1, (1, 1), 1, 1),
    ),
    case("maxpool2d-no-images", mg.MaxPool2d, NONE, want=NONE, **pool(3, 4, (2, 2), 1, 0)),
    case("globalavgpool", mg.GlobalAvgPool, SMALL, want=t(F32, [[2, 5], [8, 11]]), tol=EXACT, channels=2, spatial=3),
    case("globalavgpool-no-images", mg.GlobalAvgPool, NONE, want=t(F32, [], (0, 2)), channels=2, spatial=3),
    case(
        "globalavgpoolgrad",
        mg.GlobalAvgPoolGrad,
        t(F32, [[2, 4], [6, -8]]),
        want=t(F32, [1, 1, 2, 2, 3, 3, -4, -4]),
        tol=EXACT,
        channels=2,
        spatial=2,
    ),
    case(
        "globalavgpoolgrad-cut-short",
        mg.GlobalAvgPoolGrad,
        t(F32, [2, 4]),
        want=t(F32, [1, 1, 2]),
        tol=EXACT,
        channels=1,
        spatial=2,
    ),
    case(
        "globalavgpoolgrad-beyond-the-end",
        mg.GlobalAvgPoolGrad,
        t(F32, [2, 4]),
        want=t(F32, [1, 1, 2, 2, 0]),
        tol=EXACT,
        channels=1,
        spatial=2,
    ),
    case("concat-image-by-image", mg.Concat, A, B, want=BOTH, tol=EXACT, **CHANNELS),
    case("concat-no-images", mg.Concat, NONE, NONE, want=NONE, **CHANNELS),
    case("splita", mg.SplitA, BOTH, want=A, tol=EXACT, **CHANNELS),
    case("splitb", mg.SplitB, BOTH, want=B, tol=EXACT, **CHANNELS),
    case(
        "splitb-of-a-vector",
        mg.SplitB,
        t(F32, [1, 2, 3, 4]),
        want=t(F32, [3, 4]),
        tol=EXACT,
        channels_a=2,
        channels_b=2,
        spatial=1,
    ),
    case("upsample2x", mg.Upsample2x, SMALL, want=LARGE, tol=EXACT, **IMAGE),
    case("upsample2x-no-images", mg.Upsample2x, NONE, want=NONE, **IMAGE),
    case("upsample2xgrad-of-equal-pixels", mg.Upsample2xGrad, LARGE, want=t(F32, 4 * SMALL.array), tol=EXACT, **IMAGE),
    case(
        "upsample2xgrad-sums",
        mg.Upsample2xGrad,
        t(F32, [1, 2, 30, 40, 3, 4, 50, 60]),
        want=t(F32, [10, 180]),
        tol=EXACT,
        channels=1,
        in_h=1,
        in_w=2,
    ),
]

SEVEN = t(F32, [0] * 7)

BAD_CASES: list[BadCase] = [
    bad(
        "conv2d-images",
        mg.Conv2d,
        SEVEN,
        ONES_3,
        out=SEVEN,
        error=ShapeError,
        match=r"Conv2d\.x: expected the elements of \(n, 1, 4, 4\), got 7",
        **conv(1, 4, 4, 1, 3, 3, 1, 0, 0),
    ),
    bad(
        "conv2d-kernel",
        mg.Conv2d,
        ONES_4,
        SEVEN,
        out=SEVEN,
        error=ShapeError,
        match=r"Conv2d\.kernel: expected the elements of \(1, 1, 3, 3\)",
        **conv(1, 4, 4, 1, 3, 3, 1, 0, 0),
    ),
    bad(
        "conv2d-window",
        mg.Conv2d,
        ONES_4,
        t(F32, [1] * 25),
        out=SEVEN,
        error=ShapeError,
        match=r"Conv2d\.kernel_h: expected at most 4 \+ 2 \* 0 places, got 5",
        **conv(1, 4, 4, 1, 5, 5, 1, 0, 0),
    ),
    bad(
        "conv2d-stride",
        mg.Conv2d,
        ONES_4,
        ONES_3,
        out=SEVEN,
        error=ShapeError,
        match=r"Conv2d\.stride: expected at least 1, got 0",
        **conv(1, 4, 4, 1, 3, 3, 0, 0, 0),
    ),
    bad(
        "conv2dgradinput-images",
        mg.Conv2dGradInput,
        SEVEN,
        ONES_3,
        out=ONES_4,
        error=ShapeError,
        match=r"grad_out: expected the elements of \(n, 1, 2, 2\), got 7",
        **conv(1, 4, 4, 1, 3, 3, 1, 0, 0),
    ),
    bad(
        "conv2dgradweight-images",
        mg.Conv2dGradWeight,
        t(F32, [1] * 4),
        SEVEN,
        out=ONES_3,
        error=ShapeError,
        match=r"Conv2dGradWeight\.x: expected the elements of \(1, 1, 4, 4\)",
        **conv(1, 4, 4, 1, 3, 3, 1, 0, 0),
    ),
    bad(
        "maxpool2d-images",
        mg.MaxPool2d,
        SEVEN,
        out=SEVEN,
        error=ShapeError,
        match=r"MaxPool2d\.x: expected the elements of \(n, 2, 3, 4\)",
        **pool(3, 4, (2, 2), 1, 0),
    ),
    bad(
        "globalavgpool-images",
        mg.GlobalAvgPool,
        SEVEN,
        out=SEVEN,
        error=ShapeError,
        match=r"GlobalAvgPool\.x: expected the elements of \(n, 2, 3\)",
        channels=2,
        spatial=3,
    ),
    bad(
        "globalavgpoolgrad-spatial",
        mg.GlobalAvgPoolGrad,
        SEVEN,
        out=SEVEN,
        error=ShapeError,
        match=r"spatial: expected at least 1, got 0",
        channels=2,
        spatial=0,
    ),
    bad(
        "concat-images",
        mg.Concat,
        A,
        A,
        out=BOTH,
        error=ShapeError,
        match=r"Concat\.b: expected the elements of \(2, 2, 2\), got 4",
        **CHANNELS,
    ),
    bad(
        "splita-images",
        mg.SplitA,
        SEVEN,
        out=A,
        error=ShapeError,
        match=r"SplitA\.x: expected the elements of \(n, 3, 2\), got 7",
        **CHANNELS,
    ),
    bad(
        "splitb-images",
        mg.SplitB,
        SEVEN,
        out=A,
        error=ShapeError,
        match=r"SplitB\.x: expected the elements of \(n, 3, 2\), got 7",
        **CHANNELS,
    ),
    bad(
        "upsample2x-images",
        mg.Upsample2x,
        SEVEN,
        out=LARGE,
        error=ShapeError,
        match=r"Upsample2x\.x: expected the elements",
        **IMAGE,
    ),
    bad(
        "upsample2xgrad-images",
        mg.Upsample2xGrad,
        SEVEN,
        out=SMALL,
        error=ShapeError,
        match=r"grad_out: expected the elements of \(n, 2, 2, 2, 3, 2\)",
        **IMAGE,
    ),
]
