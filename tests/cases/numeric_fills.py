"""Rows of the kinds of `ir.ops.numeric` that make or surround a tensor: Full, Pad, random. References as in `numeric`.

The random kinds have distributions here that leave no choice; `tests/jax_backend/test_random.py` has the others.
"""

import numpy as np

import ir
from ir import BF16, F16, F32, F64, I8, I16, I32, I64, U8, U64
from ir.dtype import PlainDType
from ir.ops.numeric import DefaultDistribution, DistributionParams, PadBorder, PadConstant, RandomRecord
from tests.cases.numeric import FLOATS, INF, INTS, NAN, ints
from tests.opcase import EXACT, BadCase, OpCase, build, case, t


def fills() -> list[OpCase]:
    """Full with scalars of every kind."""
    rows: list[OpCase] = [case(f"full-{d.short}", ir.Full, value=1.5, want=t(d, np.full((2, 3), 1.5))) for d in FLOATS]
    rows += [case(f"full-{d.short}", ir.Full, value=7, want=t(d, np.full((2, 3), 7))) for d in INTS]
    return [
        *rows,
        case("full-u8-minus-1", ir.Full, value=-1, want=t(U8, [255, 255])),
        case("full-i8-300", ir.Full, value=300, want=t(I8, [44, 44])),
        case("full-f16-1e5-is-inf", ir.Full, value=1e5, want=t(F16, [INF])),
        case("full-i64-from-large-uint", ir.Full, value=2**64 - 1, want=t(I64, [-1])),
        case("full-u64-from-large-uint", ir.Full, value=2**64 - 1, want=ints(U64, 2**64 - 1)),
        case("full-nan", ir.Full, value=NAN, want=t(BF16, [NAN])),
        case("full-minus-0", ir.Full, value=-0.0, want=t(F32, [-0.0]), tol=EXACT),
        case("full-empty", ir.Full, value=3, want=t(F32, [], (0, 3))),
        case("full-rank-0", ir.Full, value=3, want=t(F32, 3)),
    ]


def constant(value: float | int) -> PadConstant:
    """The mode that fills with `value`."""
    return PadConstant(Constant=ir.scalar(value))


def pads() -> list[OpCase]:
    """Pad: three modes, every dtype, corners, empty axes, constants that pass through f32."""
    rows: list[OpCase] = []
    for d in (*FLOATS, *INTS):
        x, p = t(d, [1, 2, 3]), ((2, 1),)
        rows += [
            case(f"pad-constant-{d.short}", ir.Pad, x, padding=p, mode=constant(7), want=t(d, [7, 7, 1, 2, 3, 7])),
            case(f"pad-reflect-{d.short}", ir.Pad, x, padding=p, mode=PadBorder.Reflect, want=t(d, [3, 2, 1, 2, 3, 2])),
            case(f"pad-edge-{d.short}", ir.Pad, x, padding=p, mode=PadBorder.Edge, want=t(d, [1, 1, 1, 2, 3, 3])),
        ]
    square = t(F32, np.arange(1, 10), (3, 3))
    lines = [
        [6, 5, 4, 5, 6, 5],
        [3, 2, 1, 2, 3, 2],
        [6, 5, 4, 5, 6, 5],
        [9, 8, 7, 8, 9, 8],
        [6, 5, 4, 5, 6, 5],
        [3, 2, 1, 2, 3, 2],
    ]
    border, edge, two = PadBorder.Reflect, PadBorder.Edge, ((1, 2), (2, 1))
    empty = t(F32, [], (0, 2))
    return [
        *rows,
        case("pad-reflect-corners", ir.Pad, square, padding=two, mode=border, want=t(F32, lines)),
        case("pad-edge-corners", ir.Pad, square, padding=two, mode=edge, want=lambda x: np.pad(x, two, mode="edge")),
        case(
            "pad-constant-corners",
            ir.Pad,
            square,
            padding=two,
            mode=constant(-INF),
            want=lambda x: np.pad(x, two, constant_values=-INF),
        ),
        case(
            "pad-constant-through-f32",
            ir.Pad,
            t(F64, [1]),
            padding=((1, 0),),
            mode=constant(1.1),
            want=t(F64, [1.10000002384185791, 1]),
            tol=EXACT,
        ),
        case(
            "pad-constant-int-truncates",
            ir.Pad,
            t(I32, [1]),
            padding=((1, 0),),
            mode=constant(-2.7),
            want=t(I32, [-2, 1]),
        ),
        case("pad-constant-i8-300", ir.Pad, t(I8, [1]), padding=((0, 1),), mode=constant(300), want=t(I8, [1, 44])),
        case("pad-constant-empty", ir.Pad, empty, padding=((1, 0), (0, 1)), mode=constant(3), want=t(F32, [[3, 3, 3]])),
        case(
            "pad-edge-longer-than-axis",
            ir.Pad,
            t(F32, [1, 2]),
            padding=((3, 4),),
            mode=edge,
            want=t(F32, [1, 1, 1, 1, 2, 2, 2, 2, 2]),
        ),
        case("pad-edge-empty-untouched", ir.Pad, empty, padding=((0, 0), (1, 0)), mode=edge, want=t(F32, [], (0, 3))),
        case(
            "pad-reflect-none-on-one",
            ir.Pad,
            t(F32, [1, 2], (1, 2)),
            padding=((0, 0), (1, 0)),
            mode=border,
            want=t(F32, [[2, 1, 2]]),
        ),
        case("pad-nothing", ir.Pad, square, padding=((0, 0), (0, 0)), mode=constant(3), want=square),
    ]


def certain() -> list[OpCase]:
    """Draws that have one outcome only; either kind may come with either sort of dtype, which decides."""
    rows: list[OpCase] = []
    ones, zeros = np.ones((2, 3)), np.zeros((2, 3))
    kinds: dict[type[RandomRecord], tuple[PlainDType, ...]] = {ir.Random: (*FLOATS, I32), ir.IntRandom: (*INTS, F32)}
    always, never = DistributionParams(Bernoulli=1.0), DistributionParams(Bernoulli=0.0)
    five, point, truncated = (
        DistributionParams(Normal=(5.0, 0.0)),
        DistributionParams(Uniform=(2.5, 2.5)),
        DistributionParams(Uniform=(3.9, 4.2)),
    )
    for kind, dtypes in kinds.items():
        for d in dtypes:
            name = f"{kind.__name__.lower()}-{d.short}"
            rows += [
                case(f"{name}-always", kind, distribution=always, want=t(d, ones)),
                case(f"{name}-never", kind, distribution=never, want=t(d, zeros)),
                case(f"{name}-normal-without-spread", kind, distribution=five, want=t(d, 5 * ones)),
            ]
    for d in FLOATS:
        want = t(d, 2.5 * ones)
        rows.append(case(f"random-{d.short}-uniform-at-a-point", ir.Random, distribution=point, want=want, tol=EXACT))
    for d in (I32, U8):
        want = t(d, 3 * ones)
        rows.append(case(f"intrandom-{d.short}-uniform-truncates", ir.IntRandom, distribution=truncated, want=want))
    normal = {
        "saturates": (300.7, t(U8, 255 * ones)),
        "negative-is-0": (-9.0, t(U8, zeros)),
        "truncates": (-2.7, t(I16, -2 * ones)),
        "beyond-f32": (2.0**24 + 1, t(I64, np.full((2, 3), 2**24 + 1))),
    }
    rows += [
        case(f"intrandom-normal-{name}", ir.IntRandom, distribution=DistributionParams(Normal=(at, 0.0)), want=want)
        for name, (at, want) in normal.items()
    ]
    default = DefaultDistribution.Default
    return [
        *rows,
        case("random-empty", ir.Random, distribution=default, want=t(F32, [], (0, 3))),
        case("intrandom-empty", ir.IntRandom, distribution=default, want=t(I8, [], (0, 3))),
    ]


def refused(
    id: str, shape: tuple[int, ...], padding: tuple[tuple[int, int], ...], mode: PadBorder, match: str
) -> BadCase:
    """A Pad that has nothing to take elements from."""
    out = tuple(n + before + after for n, (before, after) in zip(shape, padding, strict=True))
    x, y = t(F32, np.zeros(shape)), t(F32, np.zeros(out))
    op = build(ir.Pad, (x,), (y,), {"padding": padding, "mode": mode})
    return BadCase(id, op, ir.ShapeError, match)


CASES: list[OpCase] = [*fills(), *pads(), *certain()]

BAD_CASES: list[BadCase] = [
    refused(
        "reflect-before-too-long",
        (2, 3),
        ((0, 0), (3, 0)),
        PadBorder.Reflect,
        r"Pad.padding: .*< 3 on axis 1.*\(3, 0\)",
    ),
    refused(
        "reflect-after-too-long", (2, 3), ((0, 2), (0, 0)), PadBorder.Reflect, r"Pad.padding: .*< 2 on axis 0.*\(0, 2\)"
    ),
    refused("reflect-empty-even-by-0", (0, 3), ((0, 0), (1, 0)), PadBorder.Reflect, r"Pad.padding: .*< 0 on axis 0"),
    refused("edge-of-nothing", (2, 0), ((0, 0), (0, 1)), PadBorder.Edge, r"Pad.padding: .*no edge on axis 1"),
]
