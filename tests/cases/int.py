"""Rows of `ir.ops.int`. References: Python's integers, wrapped into the dtype, and numbers of Burn's own tests."""

import operator
from collections.abc import Callable, Sequence

import numpy as np

import ir
from ir import I8, I16, I32, I64, U8, U16, U32, U64
from ir.dtype import PlainDType
from ir.ops.records import Binary, WithScalar
from tests.opcase import DTYPES, OpCase, Typed, case, t

INTS: tuple[PlainDType, ...] = (I64, I32, I16, I8, U64, U32, U16, U8)

BITWISE: dict[str, tuple[type[Binary], type[WithScalar], Callable[[int, int], int]]] = {
    "and": (ir.BitwiseAnd, ir.BitwiseAndScalar, operator.and_),
    "or": (ir.BitwiseOr, ir.BitwiseOrScalar, operator.or_),
    "xor": (ir.BitwiseXor, ir.BitwiseXorScalar, operator.xor),
}

A, B = [[3, 4, 5], [9, 3, 8]], [[6, 7, 8], [9, 10, 15]]


def ints(dtype: PlainDType, values: Sequence[int]) -> Typed:
    """Integers wrapped into `dtype`."""
    unsigned = np.array([v % 2**dtype.bits for v in values], f"u{dtype.size_bytes}")
    return Typed(unsigned.view(DTYPES[dtype]), dtype)


def edges(dtype: PlainDType) -> list[int]:
    """Values at the ends and in the middle of a dtype."""
    info = np.iinfo(DTYPES[dtype])
    return [int(info.min), int(info.max), 0, 1, 3, 0x55, int(info.min) + 1 if dtype.is_signed else int(info.max) - 1]


def bitwise_rows() -> list[OpCase]:
    """And, or, xor, not: with tensors and with scalars, in every width."""
    rows: list[OpCase] = []
    for d in INTS:
        left, right = edges(d), edges(d)[::-1]
        inverted = ints(d, [~x for x in left])
        rows.append(case(f"not-{d.short}", ir.BitwiseNot, ints(d, left), want=inverted))
        for name, (kind, with_scalar, function) in BITWISE.items():
            joined = ints(d, [function(x, y) for x, y in zip(left, right, strict=True)])
            rows.append(case(f"{name}-{d.short}", kind, ints(d, left), ints(d, right), want=joined))
            for number in (-1, 300, 0):
                wanted = ints(d, [function(x, number) for x in left])
                rows.append(
                    case(f"{name}scalar{number}-{d.short}", with_scalar, ints(d, left), want=wanted, rhs=number)
                )
    return rows


def shift_rows() -> list[OpCase]:
    """Shifts by amounts within the width and beyond it, in every width; the amount is taken modulo the width."""
    rows: list[OpCase] = []
    for d in INTS:
        amounts = [0, 1, d.bits - 1, d.bits, d.bits + 1, -1, 2 * d.bits]
        if not d.is_signed:
            amounts[5] = 2**d.bits - 1
        for x in (int(np.iinfo(DTYPES[d]).min) or 0x81, -8 if d.is_signed else 2**d.bits - 8, 1):
            masked = [n % d.bits for n in amounts]
            same, by = ints(d, [x] * len(amounts)), ints(d, amounts)
            left, right = ints(d, [x << n for n in masked]), ints(d, [x >> n for n in masked])
            rows.append(case(f"left{x}-{d.short}", ir.BitwiseLeftShift, same, by, want=left))
            rows.append(case(f"right{x}-{d.short}", ir.BitwiseRightShift, same, by, want=right))
        values = edges(d)
        for n in (1, d.bits - 1, d.bits, d.bits + 1, -1):
            left = ints(d, [x << n % d.bits for x in values])
            right = ints(d, [x >> n % d.bits for x in values])
            rows.append(case(f"leftscalar{n}-{d.short}", ir.BitwiseLeftShiftScalar, ints(d, values), want=left, rhs=n))
            rows.append(
                case(f"rightscalar{n}-{d.short}", ir.BitwiseRightShiftScalar, ints(d, values), want=right, rhs=n)
            )
    return rows


def written_rows() -> list[OpCase]:
    """Numbers of Burn's tests, broadcasting, empty tensors."""
    a, b, by = t(I32, A), t(I32, B), t(I32, [[1, 2, 3], [4, 5, 6]])
    return [
        case("and-burn", ir.BitwiseAnd, a, b, want=t(I32, [[2, 4, 0], [9, 2, 8]])),
        case("or-burn", ir.BitwiseOr, a, b, want=t(I32, [[7, 7, 13], [9, 11, 15]])),
        case("xor-burn", ir.BitwiseXor, a, b, want=t(I32, [[5, 3, 13], [0, 9, 7]])),
        case("not-burn", ir.BitwiseNot, a, want=t(I32, [[-4, -5, -6], [-10, -4, -9]])),
        case("not-u8-spec", ir.BitwiseNot, t(U8, [3]), want=t(U8, [252])),
        case("left-burn", ir.BitwiseLeftShift, a, by, want=t(I32, [[6, 16, 40], [144, 96, 512]])),
        case("right-burn", ir.BitwiseRightShift, a, by, want=t(I32, [[1, 1, 0], [0, 0, 0]])),
        case("left-i32-spec", ir.BitwiseLeftShift, t(I32, [1, 1, 1]), t(I32, [31, 32, -1]),
             want=t(I32, [-(2**31), 1, -(2**31)])),
        case("left-u8-spec", ir.BitwiseLeftShiftScalar, t(U8, [1]), want=t(U8, [1]), rhs=8),
        case("right-i32-spec", ir.BitwiseRightShift, t(I32, [-8, -8, 8]), t(I32, [1, 40, 64]),
             want=t(I32, [-4, -1, 8])),
        case("right-u64-is-logical", ir.BitwiseRightShiftScalar, ints(U64, [2**64 - 1]), want=ints(U64, [2**63 - 1]),
             rhs=1),
        case("and-broadcast", ir.BitwiseAnd, t(I16, [[1], [6]]), t(I16, [[3, 5, 7]]),
             want=t(I16, [[1, 1, 1], [2, 4, 6]])),
        case("left-broadcast", ir.BitwiseLeftShift, t(I8, [[1], [2]]), t(I8, [[0, 3, 7]]),
             want=t(I8, [[1, 8, -128], [2, 16, 0]])),
        case("or-rank-0", ir.BitwiseOrScalar, t(U32, 5, ()), want=t(U32, 7, ()), rhs=2),
        case("xorscalar-float-truncates", ir.BitwiseXorScalar, t(U16, [1, 2]), want=t(U16, [3, 0]), rhs=2.9),
        case("and-empty", ir.BitwiseAnd, t(I64, [], (0, 2)), t(I64, [], (0, 1)), want=t(I64, [], (0, 2))),
        case("leftscalar-empty", ir.BitwiseLeftShiftScalar, t(I64, [], (2, 0)), want=t(I64, [], (2, 0)), rhs=3),
    ]  # fmt: skip


CASES: list[OpCase] = [*bitwise_rows(), *shift_rows(), *written_rows()]
