"""Compares what a replay reads with the recorded answers."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ir.dtype import BF16, F16, F32, F64, FLEX32, DType
from ir.errors import IrError
from ir.tensor import TensorData, TensorIr
from ir.wire.messages import TensorResult
from jax_backend.host import to_numpy
from jax_backend.replay import Read, Sync

FIRST: Final = 5
"""Differences that are shown."""


class Tolerance(NamedTuple):
    """|got - want| <= atol + rtol * |want|; NaN equals NaN."""

    rtol: float
    atol: float

    def __str__(self) -> str:
        return f"rtol {self.rtol:g}, atol {self.atol:g}" if any(self) else "exact"


TOLERANCES: Final[dict[DType, Tolerance]] = {
    F64: Tolerance(1e-9, 1e-12),
    F32: Tolerance(1e-4, 1e-5),
    FLEX32: Tolerance(1e-2, 1e-3),
    F16: Tolerance(1e-2, 1e-3),
    BF16: Tolerance(5e-2, 1e-2),
}
"""For whole programs on another backend: sums in another order, functions whose last bit differs, some steps of both.

Everything that is no float is compared exactly.
"""


@dataclass(frozen=True)
class Difference:
    """One element."""

    index: tuple[int, ...]
    got: Any
    want: Any


@dataclass(frozen=True)
class Comparison:
    """What two tensors have in common. `note` says what differs beside the values."""

    tolerance: Tolerance
    num_elements: int
    num_different: int
    first: tuple[Difference, ...]
    max_abs: float
    note: str = ""

    @property
    def agrees(self) -> bool:
        """No difference beyond the tolerance."""
        return self.num_different == 0


def compare(got: TensorData, want: TensorData) -> Comparison:
    """Compare by value, within the tolerance of the dtype of `got`.

    An integer of another width is no difference: backends choose the width of indices for themselves.
    """
    tolerance = TOLERANCES.get(got.dtype, Tolerance(0.0, 0.0))
    both_ints = got.dtype.is_int and want.dtype.is_int
    if got.shape != want.shape or (got.dtype != want.dtype and not both_ints):
        mine, theirs = (f"{d.dtype.short}[{','.join(map(str, d.shape))}]" for d in (got, want))
        return Comparison(tolerance, 0, 1, (), float("nan"), f"got {mine}, recorded {theirs}")
    note = f"recorded as {want.dtype.short}" if got.dtype != want.dtype else ""
    return compared(to_numpy(got), to_numpy(want), tolerance, note)


def compared(got: np.ndarray, want: np.ndarray, tolerance: Tolerance, note: str = "") -> Comparison:
    """Compare arrays by value; of another shape, they differ as a whole."""
    if got.shape != want.shape:
        shapes = f"got shape {list(got.shape)}, expected {list(want.shape)}"
        return Comparison(tolerance, 0, 1, (), float("nan"), shapes)
    different, distance = _differing(got, want, tolerance)
    places = np.argwhere(different)[:FIRST]
    first = tuple(Difference(tuple(p.tolist()), got[tuple(p)].item(), want[tuple(p)].item()) for p in places)
    return Comparison(tolerance, got.size, int(different.sum()), first, distance, note)


def _differing(got: np.ndarray, want: np.ndarray, tolerance: Tolerance) -> tuple[np.ndarray, float]:
    """Where the two differ, and the largest finite distance."""
    if got.dtype == np.bool_ or np.issubdtype(got.dtype, np.integer):
        different = got != want
        return different, float(different.any())
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(got - want)
        equal = (got == want) | (np.isnan(got) & np.isnan(want))
        near = np.isfinite(distance) & (distance <= tolerance.atol + tolerance.rtol * np.abs(want))
    finite = distance[np.isfinite(distance)]
    return ~(equal | near), float(finite.max()) if finite.size else 0.0


@dataclass(frozen=True)
class Outcome:
    """A read that was waited for, or a sync (`tensor` None). `complaint` says what is wrong that is no difference."""

    request: int
    tensor: TensorIr | None
    values: np.ndarray | None = None
    error: str = ""
    comparison: Comparison | None = None
    complaint: str = ""

    @property
    def is_good(self) -> bool:
        """There is nothing to complain of, and it agrees where it was compared."""
        return not self.complaint and (self.comparison is None or self.comparison.agrees)


def outcome(answer: Read | Sync, recorded: TensorResult | None, *, check: bool) -> Outcome:
    """Wait for `answer`; with `check`, compare it with what was recorded: a failure agrees with a failure."""
    if isinstance(answer, Sync):
        failure = str(answer.failure or "")
        return Outcome(answer.request_id, None, error=failure, complaint=f"FAILED: {failure}" if failure else "")
    request, tensor = answer.request_id, answer.tensor
    want = recorded.Ok if recorded is not None and isinstance(recorded.Ok, TensorData) else None
    missing = check and recorded is None
    try:
        got = answer.result.result()
    except IrError as failure:
        expected = recorded is not None and want is None
        return Outcome(request, tensor, error=str(failure), complaint="" if expected else "FAILED")
    values = to_numpy(got)
    if want is not None:
        return Outcome(request, tensor, values, comparison=compare(got, want))
    complaint = "no answer was recorded" if missing else "DIFFERS: a failure was recorded" if recorded else ""
    return Outcome(request, tensor, values, complaint=complaint)
