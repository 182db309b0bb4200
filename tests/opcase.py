"""One row per behaviour of an operation: `OpCase`, and the builder that tables use.

A table lives in `tests/cases/<family>.py` as `CASES: list[OpCase]`; `tests/test_every_op.py` runs every row through
every generic test. The expected value never comes from the code under test: it is written by hand, or comes from
NumPy, SciPy or another independent reference in float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import ir
from ir.build import build_with
from ir.dtype import DType
from ir.op import Op

DTYPES: dict[DType, np.dtype] = {
    ir.F64: np.dtype(np.float64),
    ir.F32: np.dtype(np.float32),
    ir.FLEX32: np.dtype(np.float32),
    ir.F16: np.dtype(np.float16),
    ir.BF16: np.dtype(ml_dtypes.bfloat16),
    ir.I64: np.dtype(np.int64),
    ir.I32: np.dtype(np.int32),
    ir.I16: np.dtype(np.int16),
    ir.I8: np.dtype(np.int8),
    ir.U64: np.dtype(np.uint64),
    ir.U32: np.dtype(np.uint32),
    ir.U16: np.dtype(np.uint16),
    ir.U8: np.dtype(np.uint8),
    ir.BOOL: np.dtype(np.bool_),
    ir.BOOL_U8: np.dtype(np.bool_),
    ir.BOOL_U32: np.dtype(np.bool_),
}


class Typed(NamedTuple):
    """An array with the IR dtype it stands for; `t(F32, [1, 2])` makes one."""

    array: np.ndarray
    dtype: DType


def t(dtype: DType, values: Any, shape: tuple[int, ...] | None = None) -> Typed:
    """An array of `dtype`, rounded once from `values`, to infinity if need be; `shape` reshapes it."""
    with np.errstate(over="ignore"):
        array = np.asarray(values).astype(DTYPES[dtype])
    return Typed(array if shape is None else array.reshape(shape), dtype)


class Tolerance(NamedTuple):
    """|got - want| <= atol + rtol * |want|; NaN equals NaN. With `signed_zero`, 0.0 differs from -0.0."""

    rtol: float
    atol: float
    signed_zero: bool = False


EXACT = Tolerance(0.0, 0.0, signed_zero=True)
"""Integers, bools, moves, and float results that IEEE fixes, the sign of zero included."""

EQUAL = Tolerance(0.0, 0.0)
"""As `EXACT`, where either sign of zero is right."""

ROUNDING: dict[DType, Tolerance] = {
    ir.F64: Tolerance(1e-12, 1e-14),
    ir.F32: Tolerance(2e-6, 1e-6),
    ir.FLEX32: Tolerance(2e-6, 1e-6),
    ir.F16: Tolerance(1e-3, 1e-5),
    ir.BF16: Tolerance(8e-3, 1e-4),
}
"""A few units in the last place: functions whose last bit a library may choose, and short sums."""


@dataclass(frozen=True)
class OpCase:
    """One behaviour of one operation.

    `op` is complete (ids 0.. in the order inputs, outputs); `inputs` are its operands in declared order, `want` its
    outputs. `tolerance` None means by the dtype of each output (`ROUNDING`, exact for ints and bools).
    """

    id: str
    op: Op
    inputs: tuple[Typed, ...]
    want: tuple[Typed, ...]
    tolerance: Tolerance | None = None

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class BadCase:
    """An operation that must be refused: `error` is raised, and its message matches `match`."""

    id: str
    op: Op
    error: type[Exception]
    match: str
    inputs: tuple[Typed, ...] = field(default=())

    def __str__(self) -> str:
        return self.id


Tensors = Typed | None | Sequence[Typed]


def case(
    id: str,
    kind: type[Op],
    /,
    *tensors: Tensors,
    want: Typed | Sequence[Typed | None] | Callable[..., Any],
    out: DType | None = None,
    tol: Tolerance | None = None,
    **static: Any,
) -> OpCase:
    """A row.

    Args:
        id: readable, `kind-what-is-special`; `-k` selects by it.
        kind: the class.
        tensors: a `Typed` per tensor input in declared order, None for an absent optional one, a list for a list.
        want: the outputs, or a function that makes them from the input arrays (halves arrive as float64).
        out: dtype of the outputs where `want` is a function; by default that of the first input.
        tol: tolerance; by default by dtype.
        static: every other field by name. Scalars may be Python numbers. Fields of nested records go by the last name.
    """
    flat = [x for item in tensors for x in _listed(item)]
    if callable(want):
        arrays = [x.array.astype(np.float64) if x.dtype in (ir.F16, ir.BF16) else x.array for x in flat]
        with np.errstate(all="ignore"):
            made = want(*arrays)
        dtype = out or flat[0].dtype
        want = [t(dtype, made)] if not isinstance(made, tuple) else [t(dtype, m) for m in made]
    wanted = [want] if isinstance(want, Typed) else list(want)
    op = build(kind, tensors, wanted, static)
    return OpCase(id, op, tuple(flat), tuple(w for w in wanted if w is not None), tol)


def bad(
    id: str,
    kind: type[Op],
    /,
    *tensors: Tensors,
    out: Typed,
    error: type[Exception],
    match: str,
    **static: Any,
) -> BadCase:
    """An operation of one output that must be refused; arguments as in `case`, `out` of the type that it declares."""
    inputs = tuple(x for item in tensors for x in _listed(item))
    return BadCase(id, build(kind, tensors, [out], static), error, match, inputs)


def build(kind: type[Op], tensors: Sequence[Tensors], outputs: Sequence[Typed | None], static: dict[str, Any]) -> Op:
    """The operation of `kind` on tensors of these shapes and dtypes; ids 0.. in the order inputs, outputs."""
    number = iter(range(10_000))

    def described(x: Typed, status: ir.TensorStatus) -> ir.TensorIr:
        return ir.tensor(next(number), x.array.shape, x.dtype, status)

    ins = [
        [described(y, ir.READ_ONLY) for y in x] if isinstance(x, list) else described(x, ir.READ_ONLY) if x else None
        for x in tensors
    ]
    outs = [described(x, ir.NOT_INIT) if x else None for x in outputs]
    return build_with(kind, ins, outs, static)


def _listed(item: Tensors) -> list[Typed]:
    return [] if item is None else [item] if isinstance(item, Typed) else list(item)
