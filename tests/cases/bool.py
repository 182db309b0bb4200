"""Rows of `ir.ops.bool`: truth tables in each store, broadcasting, empty tensors, casts to numbers."""

import operator
from collections.abc import Callable

import numpy as np

import ir
from ir import BF16, BOOL, BOOL_U8, BOOL_U32, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64
from ir.ops.records import Binary
from tests.opcase import OpCase, case, t

STORES = (BOOL, BOOL_U8, BOOL_U32)
BINARY: dict[type[Binary], Callable[[bool, bool], bool]] = {
    ir.And: operator.and_,
    ir.Or: operator.or_,
    ir.Xor: operator.xor,
}


def rows() -> list[OpCase]:
    """The whole table."""
    p, q = [False, False, True, True], [False, True, False, True]
    made: list[OpCase] = []
    for store in STORES:
        made.append(case(f"not-{store.short}", ir.Not, t(store, p), want=t(store, [True, True, False, False])))
        for kind, function in BINARY.items():
            wanted = t(store, list(map(function, p, q)))
            made.append(case(f"{kind.__name__.lower()}-{store.short}", kind, t(store, p), t(store, q), want=wanted))
        made += [
            case(f"intofloat-{store.short}-{d.short}", ir.IntoFloat, t(store, p), want=t(d, [0, 0, 1, 1]))
            for d in (F64, F32, F16, BF16)
        ]
        made += [
            case(f"intoint-{store.short}-{d.short}", ir.IntoInt, t(store, q), want=t(d, [0, 1, 0, 1]))
            for d in (I64, I32, I16, I8, U64, U32, U16, U8)
        ]
    for kind, function in BINARY.items():
        name = kind.__name__.lower()
        left, right = np.array([[True], [False]]), np.array([[True, False, True]])
        made += [
            case(f"{name}-broadcast", kind, t(BOOL, left), t(BOOL, right), want=t(BOOL, function(left, right))),  # type: ignore[arg-type]
            case(f"{name}-empty", kind, t(BOOL, [], (0, 3)), t(BOOL, [[True]]), want=t(BOOL, [], (0, 3))),
        ]
    return [*made, case("not-empty", ir.Not, t(BOOL, [], (2, 0)), want=t(BOOL, [], (2, 0)))]


CASES: list[OpCase] = rows()
