"""Rows of `ir.meganeura.ops.norm`. References: the formulas in float64, and numbers worked by hand."""

from typing import Any

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from ir.op import Op
from tests.opcase import BadCase, OpCase, Tolerance, bad, case, t
from tests.reference.meganeura import Function, float64, silu, waves

X, W = t(F32, [[1, 2, 3, 4], [-1, 0, 1, 2]]), t(F32, [1, 0.5, 2, 1])
DY, B = t(F32, [[1, 0, -1, 0.5], [0.2, 0.4, 0.6, 0.8]]), t(F32, [0.5, -1, 2, 0])
SUMS = Tolerance(1e-5, 1e-5)
"""Differences of sums of several terms."""

EPS = 0.01


def rms(x: np.ndarray) -> np.ndarray:
    """(mean(x²) + eps)^-1/2 per row."""
    return 1 / np.sqrt((x * x).mean(1, keepdims=True) + EPS)


def normalised(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """xhat, rstd."""
    rstd = 1 / np.sqrt(x.var(axes, keepdims=True) + EPS)
    return (x - x.mean(axes, keepdims=True)) * rstd, rstd


def normalised_grad(g: np.ndarray, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Gradient for x of the sum of g xhat."""
    xhat, rstd = normalised(x, axes)
    return rstd * (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True))


def rms_grad_x(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Scale r of the row: r (dy w - x r² / cols * sum(dy w x))."""
    r = rms(x)
    return r * (dy * w - x * r * r / x.shape[1] * (dy * w * x).sum(1, keepdims=True))


WIDE = {
    mg.RmsNorm: lambda x, w: x * rms(x) * w,
    mg.LayerNorm: lambda x, w, b: normalised(x, (1,))[0] * w + b,
    mg.RmsNormGradW: lambda dy, x, w: (dy * x * rms(x)).sum(0),
    mg.RmsNormGradX: rms_grad_x,
    mg.LayerNormGradWB: lambda dy, x, w: (dy * normalised(x, (1,))[0]).sum(0),
    mg.LayerNormGradX: lambda dy, x, w: normalised_grad(dy * w, x, (1,)),
}


def row_norm_rows() -> list[OpCase]:
    """Each norm over rows on 3 rows of 5, far from zero, and without rows."""
    found: list[OpCase] = []
    for kind, function in WIDE.items():
        name = kind.__name__.lower()
        x, dy, w, b = (t(F32, a) for a in (waves(3, 5), waves(3, 5, step=0.9), waves(5) + 2, waves(5)))
        given = {mg.RmsNorm: (x, w), mg.LayerNorm: (x, w, b)}.get(kind, (dy, x, w))
        found.append(case(name, kind, *given, want=float64(function), tol=SUMS, eps=EPS))
        none = t(F32, [], (0, 5))
        given = {mg.RmsNorm: (none, w), mg.LayerNorm: (none, w, b)}.get(kind, (none, none, w))
        want = t(F32, np.zeros(5)) if kind in (mg.RmsNormGradW, mg.LayerNormGradWB) else none
        found.append(case(f"{name}-no-rows", kind, *given, want=want, eps=EPS))
    return found


GROUPS: dict[str, Any] = {"num_groups": 2, "eps": EPS, "channels": 6, "spatial": 5}


def by_group(x: np.ndarray) -> np.ndarray:
    """(N, groups, C / groups, S)."""
    return x.reshape(-1, 2, 3, 5)


def per_channel(w: np.ndarray) -> np.ndarray:
    """(1, groups, C / groups, 1)."""
    return w.reshape(1, 2, 3, 1)


def group_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of 6 channels in 2 groups and 5 places."""
    return (normalised(by_group(x), (2, 3))[0] * per_channel(w) + per_channel(b)).reshape(-1)


def group_norm_grad_wb(go: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sums per channel of go xhat, then of go."""
    xhat = normalised(by_group(x), (2, 3))[0]
    return np.concatenate([(by_group(go) * xhat).sum((0, 3)).reshape(-1), by_group(go).sum((0, 3)).reshape(-1)])


GROUPED: dict[type[Op], Function] = {
    mg.GroupNorm: group_norm,
    mg.GroupNormSilu: lambda x, w, b: silu(group_norm(x, w, b)),
    mg.GroupNormGradInput: lambda go, x, w: normalised_grad(by_group(go) * per_channel(w), by_group(x), (2, 3)).reshape(
        -1
    ),
    mg.GroupNormGradWeightBias: group_norm_grad_wb,
}


def group_norm_rows() -> list[OpCase]:
    """Each grouped kind on 3 images, and on none."""
    found: list[OpCase] = []
    for kind, function in GROUPED.items():
        name = kind.__name__.lower()
        for id, images in ((name, 3), (f"{name}-no-images", 0)):
            x, go, w, b = (
                t(F32, a) for a in (waves(images * 30), waves(images * 30, step=0.9), waves(6) + 2, waves(6, start=1.0))
            )
            given = {mg.GroupNormGradInput: (go, x, w), mg.GroupNormGradWeightBias: (go, x)}.get(kind, (x, w, b))
            want = (
                t(F32, np.zeros(12 if kind is mg.GroupNormGradWeightBias else 0)) if not images else float64(function)
            )
            found.append(case(id, kind, *given, want=want, tol=SUMS, **GROUPS))
    return found


CASES: list[OpCase] = [
    *row_norm_rows(),
    *group_norm_rows(),
    case(
        "rmsnorm-by-hand",
        mg.RmsNorm,
        X,
        W,
        want=t(F32, [[0.365148, 0.365148, 2.190889, 1.460593], [-0.816494, 0, 1.632988, 1.632988]]),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "rmsnormgradw-by-hand",
        mg.RmsNormGradW,
        DY,
        X,
        W,
        want=t(F32, [0.201849, 0, -0.605548, 2.036686]),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "rmsnormgradx-by-hand",
        mg.RmsNormGradX,
        DY,
        X,
        W,
        want=t(F32, [[0.401663, 0.073030, -0.620752, 0.328633], [0.517110, 0.163299, 0.625981, -0.054428]]),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "layernorm-by-hand",
        mg.LayerNorm,
        X,
        W,
        t(F32, [0] * 4),
        want=t(F32, [[-1.341635, -0.223606, 0.894424, 1.341635]] * 2),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "layernorm-two-passes",
        mg.LayerNorm,
        t(F32, [[10000, 10001, 10002, 10003]]),
        t(F32, [1] * 4),
        B,
        want=t(F32, [[-0.8416354, -1.4472122, 2.4472122, 1.3416354]]),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "layernormgradwb-weight-alone",
        mg.LayerNormGradWB,
        DY,
        X,
        W,
        want=t(F32, [-1.609963, -0.178885, -0.178885, 1.744126]),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "layernormgradx-by-hand",
        mg.LayerNormGradX,
        DY,
        X,
        W,
        want=t(F32, [[0.536658, -0.044720, -1.520521, 1.028583], [0.017885, -0.232551, 0.411436, -0.196770]]),
        tol=SUMS,
        eps=1e-5,
    ),
    case(
        "groupnorm-by-hand",
        mg.GroupNorm,
        t(F32, np.arange(1, 17)),
        t(F32, [1, 2, 3, 4]),
        t(F32, [0.1, 0.2, 0.3, 0.4]),
        want=t(
            F32,
            [
                *(-1.427524, -0.991088, -0.554653, -0.118218, 0.636435, 1.509306, 2.382177, 3.255048),
                *(-4.282571, -2.973265, -1.663959, -0.354653, 1.272871, 3.018612, 4.764354, 6.510095),
            ],
        ),
        tol=SUMS,
        num_groups=2,
        eps=1e-5,
        channels=4,
        spatial=4,
    ),
]

THREE, THIRTY = t(F32, [1] * 3), t(F32, [0] * 30)

BAD_CASES: list[BadCase] = [
    *(
        bad(f"{kind.__name__.lower()}-weight", kind, *given, out=X, error=ShapeError, match=match, eps=1e-5)
        for kind, given, match in (
            (mg.RmsNorm, (X, THREE), r"RmsNorm\.weight: expected the elements of \(1, 4\), got 3"),
            (mg.LayerNorm, (X, W, THREE), r"LayerNorm\.bias: expected the elements of \(1, 4\), got 3"),
            (mg.RmsNormGradX, (DY, X, THREE), r"RmsNormGradX\.w: expected the elements of \(1, 4\), got 3"),
            (mg.LayerNormGradX, (THREE, X, W), r"LayerNormGradX\.dy: expected the elements of \(2, 4\), got 3"),
            (mg.RmsNormGradW, (THREE, X, W), r"RmsNormGradW\.dy: expected the elements of \(2, 4\), got 3"),
            (mg.LayerNormGradWB, (THREE, X, W), r"LayerNormGradWB\.dy: expected the elements of \(2, 4\), got 3"),
        )
    ),
    *(
        bad(f"{kind.__name__.lower()}-groups", kind, *given, out=THIRTY, error=ShapeError, match=match, **uneven)
        for uneven in ({**GROUPS, "num_groups": 4},)
        for kind, given in (
            (mg.GroupNorm, (THIRTY, W, W)),
            (mg.GroupNormSilu, (THIRTY, W, W)),
            (mg.GroupNormGradInput, (THIRTY, THIRTY, W)),
            (mg.GroupNormGradWeightBias, (THIRTY, THIRTY)),
        )
        for match in (rf"{kind.__name__}\.num_groups: expected a divisor of 6 channels, got 4",)
    ),
    bad(
        "groupnorm-images",
        mg.GroupNorm,
        t(F32, [0] * 31),
        t(F32, [1] * 6),
        t(F32, [1] * 6),
        out=t(F32, [0] * 31),
        error=ShapeError,
        match=r"GroupNorm\.x: expected the elements of \(n, 2, 3, 5\), got 31",
        **GROUPS,
    ),
]
