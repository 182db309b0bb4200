"""Rows of `Custom`, with the handlers that they name, and of the collectives."""

from collections.abc import Callable
from typing import Any

import ir
from tests.opcase import EXACT, BadCase, OpCase, build, case, t


def _scaled_sum(op: ir.Custom, inputs: tuple[Any, ...]) -> Any:
    """The first scalar, which is static, times the sum of all inputs."""
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total * total.dtype.type(op.scalars[0].value)


def _halves(op: ir.Custom, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A vector cut at the first scalar: a scalar decides a shape."""
    (x,) = inputs
    cut = int(op.scalars[0].value)
    return x[:cut], x[cut:]


HANDLERS: dict[str, Callable[..., Any]] = {"test::scaled_sum": _scaled_sum, "test::halves": _halves}

_X = t(ir.F32, [1.0, 2.0, 3.0, 4.0])
_Y = t(ir.F32, [10.0, 20.0, 30.0, 40.0])

CASES: list[OpCase] = [
    case(
        "custom-several-inputs",
        ir.Custom,
        [_X, _Y],
        id="test::scaled_sum",
        scalars=(ir.scalar(0.5),),
        want=t(ir.F32, [5.5, 11.0, 16.5, 22.0]),
        tol=EXACT,
    ),
    case(
        "custom-several-outputs",
        ir.Custom,
        [_X],
        id="test::halves",
        scalars=(ir.scalar(1),),
        want=[t(ir.F32, [1.0]), t(ir.F32, [2.0, 3.0, 4.0])],
        tol=EXACT,
    ),
    # What several devices do is in tests/jax_backend/test_collective.py.
    case("all-reduce-alone", ir.AllReduce, _X, op="Mean", device_ids=(ir.DeviceId(0, 2),), want=_X, tol=EXACT),
    case("sync-collective", ir.SyncCollective, want=[]),
]


def _bad(name: str, custom_id: str, outputs: list[Any], error: type[Exception], match: str) -> BadCase:
    static = {"id": custom_id, "scalars": (ir.scalar(1.0),)}
    return BadCase(name, build(ir.Custom, [[_X]], outputs, static), error, match)


BAD_CASES: list[BadCase] = [
    _bad("custom-unknown-id", "nobody::knows", [_X], ir.UnsupportedOp, "no handler for 'nobody::knows'; known ids: "),
    _bad("custom-output-count", "test::scaled_sum", [_X, _X], ir.ShapeError, "expected 2 outputs, got 1"),
    _bad("custom-output-shape", "test::scaled_sum", [t(ir.F32, [1.0])], ir.ShapeError, r"declared shape \(1,\)"),
    _bad("custom-output-dtype", "test::scaled_sum", [t(ir.F64, _X.array)], ir.DTypeError, "declared dtype f64"),
    BadCase(
        "all-reduce-of-two-on-one",
        build(ir.AllReduce, [_X], [_X], {"op": "Sum", "device_ids": (ir.DeviceId(0, 0), ir.DeviceId(0, 1))}),
        ir.StreamError,
        "expected one device, got 2: this program runs on one alone",
    ),
]
