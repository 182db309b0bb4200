"""Rows of base kinds on ints of every width and on bools of every store; `base` has their behaviour on floats."""

import numpy as np

import ir
from ir import BOOL, BOOL_U8, BOOL_U32, I8, I16, I32, I64, U8, U16, U32, U64
from ir.dtype import DType
from tests.opcase import OpCase, case, t

DTYPES: tuple[DType, ...] = (I64, I32, I16, I8, U64, U32, U16, U8, BOOL, BOOL_U8, BOOL_U32)


def moves(dtype: DType) -> list[OpCase]:
    """Kinds that move elements."""
    name = dtype.short
    plain = np.array([[0, 1, 2], [3, 0, 5]])
    x, row = t(dtype, plain), t(dtype, plain[:1])
    return [
        case(f"reshape-{name}", ir.Reshape, x, want=t(dtype, plain.reshape(3, 2))),
        case(f"swapdims-{name}", ir.SwapDims, x, want=t(dtype, plain.T), dim1=1, dim2=0),
        case(f"permute-{name}", ir.Permute, x, want=t(dtype, plain.T), axes=(1, 0)),
        case(f"flip-{name}", ir.Flip, x, want=t(dtype, plain[:, ::-1]), axes=(1,)),
        case(f"expand-{name}", ir.Expand, row, want=t(dtype, np.repeat(plain[:1], 4, 0))),
        case(f"repeatdim-{name}", ir.RepeatDim, x, want=t(dtype, np.tile(plain, (1, 2))), dim=1, times=2),
        case(f"cat-{name}", ir.Cat, [x, row], want=t(dtype, np.concatenate([plain, plain[:1]])), dim=0),
    ]


def questions(dtype: DType) -> list[OpCase]:
    """Kinds that compare, or ask for truth."""
    name, store = dtype.short, dtype if dtype.is_bool else BOOL
    left, right = np.array([[0, 1, 2], [3, 0, 5]]), np.array([[0, 2, 2], [0, 1, 5]])
    x, y = t(dtype, left), t(dtype, right)
    a, b = x.array, y.array  # bools: what is not 0 is true
    truth = a != 0
    return [
        case(f"equal-{name}", ir.Equal, x, y, want=t(store, a == b)),
        case(f"notequal-{name}", ir.NotEqual, x, y, want=t(store, a != b)),
        case(f"all-{name}", ir.All, x, want=t(store, [truth.all()])),
        case(f"any-{name}", ir.Any, x, want=t(store, [truth.any()])),
        case(f"alldim-{name}", ir.AllDim, x, want=t(store, truth.all(0, keepdims=True)), axis=0, accumulator_len=1),
        case(f"anydim-{name}", ir.AnyDim, x, want=t(store, truth.any(1, keepdims=True)), axis=1, accumulator_len=1),
    ]


CASES: list[OpCase] = [row for dtype in DTYPES for row in (*moves(dtype), *questions(dtype))]
