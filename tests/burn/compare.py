"""What both sides answer, held against each other."""

import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import ir
from ir.dtype import DType
from ir.tensor import TensorData
from jax_backend import host
from jax_backend.dtypes import jax_dtype
from tests.burn.case import Array, Case


@dataclass(frozen=True)
class Outcome:
    """What one side answers: the tensors read and the live ids, or why it refuses."""

    reads: tuple[TensorData, ...] = ()
    live: frozenset[int] = frozenset()
    refusal: str | None = None


@dataclass(frozen=True)
class Difference:
    """Where the two sides disagree; of read `place`, `got` are our values and `want` Burn's, where they differ."""

    case: Case
    burn: Outcome
    ours: Outcome
    how: str
    reason: str
    place: int | None = None
    got: Array = field(default_factory=lambda: np.zeros(0))
    want: Array = field(default_factory=lambda: np.zeros(0))

    def __str__(self) -> str:
        lines = [f"{self.case.form.path}, {self.how}: {self.reason}", f"  {self.case.op}"]
        lines += [
            f"  t{t.id.value} = {_listed(a)}" for t, a in zip(self.case.op.inputs, self.case.inputs(), strict=False)
        ]
        lines += [
            f"  {name} refuses: {o.refusal}" for name, o in (("Burn", self.burn), ("ours", self.ours)) if o.refusal
        ]
        if self.place is not None:
            lines += [f"  ours {_listed(self.got)}", f"  Burn {_listed(self.want)}"]
        return "\n".join(lines)


def _listed(array: Array) -> str:
    shown = ", ".join(str(v) for v in array.reshape(-1)[:16].tolist())
    return f"[{shown}{', ..' if array.size > 16 else ''}]"


def compare(case: Case, burn: Outcome, ours: Outcome, how: str) -> Difference | None:
    """What the two sides disagree on, if anything; that both refuse is agreement."""
    if burn.refusal or ours.refusal:
        if burn.refusal and ours.refusal:
            return None
        side = "Burn refuses, ours does not" if burn.refusal else "ours refuses, Burn does not"
        return Difference(case, burn, ours, how, side)
    for place, (want, got) in enumerate(zip(burn.reads, ours.reads, strict=True)):
        found = _compare_read(case, place, want, got)
        if found is not None:
            return Difference(case, burn, ours, how, found[0], place, *found[1:])
    if burn.live != ours.live:
        base = min(case.ids())
        lists = " against Burn's ".join(str(sorted(i - base for i in o.live)) for o in (ours, burn))
        return Difference(case, burn, ours, how, f"live ids {lists}")
    return None


def _compare_read(case: Case, place: int, want: TensorData, got: TensorData) -> tuple[Any, ...] | None:
    if want.shape != got.shape:
        return f"read {place}: shape {got.shape}, Burn's {want.shape}", np.array(got.shape), np.array(want.shape)
    if not _is_declared(want.dtype, got.dtype):
        return (f"read {place}: dtype {got.dtype.short}, Burn's {want.dtype.short}",)
    ours, burn = host.to_numpy(got), host.to_numpy(want)
    if got.dtype.is_bool:
        burn = burn != 0
    is_output = place < len(case.op.outputs)
    if is_output and case.plan.compare == "shape":
        return None
    if is_output and case.plan.compare == "draws":
        distance = kolmogorov_smirnov(ours.astype(np.float64).reshape(-1), burn.astype(np.float64).reshape(-1))
        limit = 2.5 * np.sqrt(2 / max(1, ours.size))
        return None if distance <= limit else (f"read {place}: distributions differ by {distance:.3f}", ours, burn)
    bad = differing(case, ours, burn) if is_output else ours.tobytes() != burn.tobytes()
    if not np.any(bad):
        return None
    bad = np.broadcast_to(bad, ours.shape)
    return f"read {place}: {bad.sum()} of {bad.size} elements differ", ours[bad], burn[bad]


def _is_declared(burn: DType, ours: DType) -> bool:
    """Whether Burn's dtype is the declared one, or one that Flex gives instead: it does not look at declarations.

    Indices are I64; a bool has the store of the device or of an input, and some moves leave it as its u8.
    """
    return burn == ours or (burn is ir.I64 and ours.is_int) or (ours.is_bool and (burn.is_bool or burn is ir.U8))


def kolmogorov_smirnov(a: Array, b: Array) -> float:
    """The largest distance between the distribution functions of two samples; above 2.5 sqrt(2 / n) once in 10^5."""
    points = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(x), points, side="right") / max(1, x.size) for x in (a, b)]
    return float(np.max(np.abs(below[0] - below[1]), initial=0))


def differing(case: Case, ours: Array, burn: Array) -> Array:
    """Where an output is not Burn's, beyond the slack of its plan."""
    if burn.dtype.kind not in "fV":
        return ours.astype(np.int64) != burn.astype(np.int64) if ours.dtype != burn.dtype else ours != burn
    slack = case.plan.slack
    finfo = ml_dtypes.finfo(burn.dtype)
    accumulator = np.float32 if finfo.bits == 16 else burn.dtype
    if slack.accumulator is not None:
        accumulator = jax_dtype(slack.accumulator)
    rounding = float(ml_dtypes.finfo(accumulator).eps)
    largest = math.prod(max(1.0, abs(float(s.value))) for s in case.op.traced_scalars if math.isfinite(s.value))
    for operand in case.inputs():
        if operand.dtype.kind == "f":
            largest *= max(1.0, float(np.max(np.abs(operand), initial=0, where=np.isfinite(operand)))) ** slack.degree
    got, want = ours.astype(np.float64), burn.astype(np.float64)
    # XLA's CPU programs flush denormals that they compute: what is below the smallest normal number counts as 0.
    allowed = 0.0 if slack.signed_zero else float(finfo.tiny)
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = allowed + slack.ulps * float(finfo.eps) * np.abs(want)
        if slack.terms:
            allowed = allowed + slack.terms * rounding * largest
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.isfinite(got) & (np.abs(got - want) <= allowed))
    if slack.signed_zero:
        same &= (np.signbit(got) == np.signbit(want)) | (want != 0)
    return ~same
