"""Time that a device was busy, from a trace of jax's profiler."""

from pathlib import Path
from typing import NamedTuple

import jax


class Traced(NamedTuple):
    """Nanoseconds in which a kernel or copy ran on the GPU, and from the first of them to the last."""

    busy: float
    whole: float


def traced(folder: Path) -> Traced:
    """What a trace says.

    Raises:
        FileNotFoundError: no trace of a GPU lies in `folder`.
    """
    found = sorted(folder.rglob("*.xplane.pb"))
    if not found:
        raise FileNotFoundError(f"no trace in {folder}")
    data = jax.profiler.ProfileData.from_file(str(found[-1]))
    spans = [
        (event.start_ns, event.start_ns + event.duration_ns)
        for plane in data.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
    if not spans:
        raise FileNotFoundError(f"no GPU in the trace in {folder}")
    first = reached = min(spans)[0]
    busy = 0.0
    for start, end in sorted(spans):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return Traced(busy, reached - first)


def busy_share(folder: Path) -> float:
    """Share of the traced time, from the first kernel or copy to the last, in which one ran on the GPU.

    Raises:
        FileNotFoundError: as `traced`.
    """
    busy, whole = traced(folder)
    return busy / whole
