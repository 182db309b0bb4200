"""Rows of `ir.meganeura.ops.leaf`."""

import numpy as np

from ir import F32
from ir.errors import ShapeError
from ir.meganeura import ops as mg
from tests.opcase import EXACT, BadCase, OpCase, bad, case, t

ODD = t(F32, [[1.5, -0.0, np.nan], [np.inf, 1e-30, 7]])

CASES: list[OpCase] = [
    case("constant-values", mg.Constant, want=ODD, tol=EXACT, data=ODD.array.astype("<f4").tobytes()),
    case(
        "constant-uniform",
        mg.Constant,
        want=t(F32, np.full((3, 5), 0.1)),
        tol=EXACT,
        data=np.array([0.1], "<f4").tobytes(),
    ),
    case("constant-negative-zero", mg.Constant, want=t(F32, [-0.0] * 3), tol=EXACT, data=b"\0\0\0\x80"),
    case("constant-empty", mg.Constant, want=t(F32, [], (0, 2)), data=b""),
    case("identity-reshapes", mg.Identity, ODD, want=t(F32, ODD.array.reshape(6)), tol=EXACT),
    case("identity-to-three-axes", mg.Identity, ODD, want=t(F32, ODD.array.reshape(3, 1, 2)), tol=EXACT),
    case("identity-of-one", mg.Identity, t(F32, [2]), want=t(F32, [[2]]), tol=EXACT),
    case("identity-empty", mg.Identity, t(F32, [], (2, 0)), want=t(F32, [], (0, 3)), tol=EXACT),
]

BAD_CASES: list[BadCase] = [
    bad("identity-count", mg.Identity, ODD, out=t(F32, [0] * 5), error=ShapeError, match=r"Identity\.out: declared"),
    bad(
        "constant-count",
        mg.Constant,
        out=t(F32, [0] * 5),
        error=ShapeError,
        match=r"Constant\.data: expected 5 elements, got 3",
        data=np.zeros(3, "<f4").tobytes(),
    ),
]
