"""What may be wrong with a recording, as searches: each finds the first fault and cuts the recording down to it.

`Differing(parse("eager"), parse("f64"))` has a `find(recording)`, and a `smallest(recording, fault, seconds=30)`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ir.wire.messages import TensorResult
from jax_backend import host
from jax_backend.check import Tolerance
from jax_backend.differences import Fault, Tick, first_difference, first_nonfinite
from jax_backend.recording import Recording
from jax_backend.shrinking import shrunk, values_on
from jax_backend.sides import OperationFailed, Recorded, Side


@dataclass(frozen=True)
class Search(ABC):
    """A way to go wrong; `left` is where the recording runs."""

    left: Side

    @abstractmethod
    def find(self, recording: Recording, tick: Tick | None = None) -> Fault | None:
        """The first fault, or None."""

    def is_same(self, fault: Fault, other: Fault) -> bool:
        """Whether `other`, found in a part of the recording, is the same fault."""
        return fault.tensor.id == other.tensor.id

    def smallest(self, recording: Recording, fault: Fault, *, seconds: float) -> Recording:
        """The smallest recording found, in `seconds` at most, that still has the fault at its end."""

        def holds(candidate: Recording) -> bool:
            found = self.find(candidate)
            return found is not None and self.is_same(fault, found)

        values = values_on(recording, self.left) if self.can_replace else None
        return self.answered(shrunk(recording, fault.tensor.id.value, values, holds, seconds=seconds))

    @property
    def can_replace(self) -> bool:
        """Whether an operation may be replaced by what it computes on the left."""
        return True

    def answered(self, recording: Recording) -> Recording:
        """`recording` with the answer that ought to come at its end."""
        return recording


@dataclass(frozen=True)
class Differing(Search):
    """An operation differs between two sides, beyond a tolerance where floats have one."""

    right: Side
    tolerance: Tolerance | None = None
    only_by_itself: bool = False

    def find(self, recording: Recording, tick: Tick | None = None) -> Fault | None:
        """See `first_difference`."""
        sides = (recording, self.left), (recording, self.right)
        return first_difference(*sides, self.tolerance, tick, only_by_itself=self.only_by_itself)

    @property
    def can_replace(self) -> bool:
        """Not where the right side has no values but the answers of the whole."""
        return not isinstance(self.right, Recorded)

    def answered(self, recording: Recording) -> Recording:
        """The right side's value is what ought to come."""
        if isinstance(self.right, Recorded):
            return recording
        (read,) = recording.reads
        wanted = values_on(recording, self.right)[read.tensor.id.value]
        recording.reads[:] = [read._replace(answer=TensorResult(Ok=host.from_numpy(wanted, read.tensor.dtype)))]
        return recording


@dataclass(frozen=True)
class NonFinite(Search):
    """An operation makes a NaN, or an infinity, of inputs that have none."""

    infinities: bool = True

    def find(self, recording: Recording, tick: Tick | None = None) -> Fault | None:
        """See `first_nonfinite`."""
        return first_nonfinite(recording, self.left, infinities=self.infinities, tick=tick)

    def is_same(self, fault: Fault, other: Fault) -> bool:
        """A NaN does not become an infinity while it is made small."""
        return super().is_same(fault, other) and _has_nan(fault) == _has_nan(other)


def _has_nan(fault: Fault) -> bool:
    return fault.left is not None and bool(np.isnan(fault.left.astype(np.float64)).any())


@dataclass(frozen=True)
class Failing(Search):
    """An operation raises."""

    def find(self, recording: Recording, tick: Tick | None = None) -> Fault | None:
        """The operation that raises, with what it raised."""
        try:
            for place, _ in enumerate(self.left.run(recording, {})):
                if tick:
                    tick(place + 1)
        except OperationFailed as failure:
            op = recording.ops[failure.place]
            total, why = len(recording.ops), str(failure.reason)
            return Fault(failure.place, total, op, op.outputs[0], None, None, None, (), why)
        return None
