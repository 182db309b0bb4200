"""Makes what fails small: fewer operations, fewer elements that matter, as long as it still fails."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from ir.op import Op
from ir.tensor import READ_ONLY
from jax_backend import host
from jax_backend.recording import Read, Recording
from jax_backend.sides import OperationFailed, Side, Values

MAX_ELEMENTS: Final = 4096
"""Elements of a tensor beyond which they are left as they are."""


def simplified(row: list[int], holds: Callable[[list[int]], bool]) -> list[int]:
    """`row` with as many zeros and as small numbers as possible, so that it still `holds`.

    >>> simplified([7, 3, 9, 12], lambda row: row[1] + row[3] >= 5)
    [0, 0, 0, 5]
    """
    size = len(row)
    while size:
        for start in range(0, len(row), size):
            end = min(start + size, len(row))
            zeroed = row[:start] + [0] * (end - start) + row[end:]
            if zeroed != row and holds(zeroed):
                row = zeroed
        size //= 2
    for place in range(len(row)):
        low, high = 0, row[place]  # the smallest number that holds, if all above it do
        while high - low > 1:
            middle = (low + high) // 2
            lowered = [*row[:place], middle, *row[place + 1 :]]
            if holds(lowered):
                row, high = lowered, middle
            else:
                low = middle
    return row


def leading_to(recording: Recording, target: Collection[int]) -> list[int]:
    """Places of the operations that the tensors `target` depend on, in order."""
    wanted, places = set(target), list[int]()
    for place in range(len(recording.ops) - 1, -1, -1):
        op = recording.ops[place]
        if wanted.intersection(t.id.value for t in op.outputs):
            places.append(place)
            wanted.update(t.id.value for t in op.inputs)
    return places[::-1]


def cut(recording: Recording, keep: Collection[int], target: int, values: Mapping[int, np.ndarray]) -> Recording:
    """The operations at the places `keep` that lead to `target`; whatever else they need is data.

    Args:
        recording: the whole.
        keep: places.
        target: a tensor, read in the end; what was recorded for it stays its answer.
        values: what tensors hold, by id, for those that the result does not compute.
    """
    made = Recording()
    wanted, chosen = {target}, list[Op]()
    for place in sorted(keep, reverse=True):
        op = recording.ops[place]
        if wanted.intersection(t.id.value for t in op.outputs):
            chosen.append(op)
            wanted.update(t.id.value for t in op.inputs)
    computed = {t.id.value for op in chosen for t in op.outputs}
    for op in reversed(chosen):
        for tensor in op.inputs:
            id = tensor.id.value
            if id not in computed and id not in made.data:
                made.data[id] = recording.data.get(id) or host.from_numpy(values[id], tensor.dtype)
        made.append(op)
    made.names.update(recording.names)
    last = recording.ops[recording.made[target]]
    tensor = next(t for t in last.outputs if t.id.value == target)
    answer = next((r.answer for r in recording.reads if r.tensor.id.value == target and r.answer), None)
    made.reads.append(Read(len(made.ops), 1, replace(tensor, status=READ_ONLY), answer))
    made.cut("read")
    return made


def values_on(recording: Recording, side: Side) -> Values:
    """Every tensor that the operations of `recording` make on a side, as far as it gets."""
    found: Values = {}
    try:
        for made in side.run(recording, found):
            found.update(made)
    except OperationFailed:  # what is looked for: what was made before it is enough
        return found
    return found


def shrunk(
    recording: Recording,
    target: int,
    values: Mapping[int, np.ndarray] | None,
    holds: Callable[[Recording], bool],
    *,
    seconds: float,
) -> Recording:
    """The smallest recording found in which `target` still fails.

    Args:
        recording: one that fails.
        target: the tensor at which it does.
        values: what tensors hold; operations are replaced by them. None: only what does not lead to `target` goes.
        holds: whether a candidate still fails.
        seconds: time after which the best so far is good enough.
    """
    deadline = time.monotonic() + seconds
    places = leading_to(recording, [target])

    def still(candidate: Recording) -> bool:
        return time.monotonic() < deadline and bool(candidate.ops) and holds(candidate)

    if values is None:
        return cut(recording, places, target, {})

    def chosen(row: list[int]) -> Recording:
        return cut(recording, [p for p, kept in zip(places, row, strict=True) if kept], target, values)

    row = [int(not recording.ops[place].uses_random) for place in places]
    if not still(chosen(row)):
        row = [1] * len(places)
    best = chosen(simplified(row, lambda row: still(chosen(row))))
    for id in list(best.data):
        best = _with_zeros(best, id, still)
    return best


def _with_zeros(recording: Recording, id: int, still: Callable[[Recording], bool]) -> Recording:
    """`recording` with every element of an upload that does not matter set to zero."""
    data = recording.data[id]
    if data.dtype.is_quantized or not 0 < (elements := host.to_numpy(data)).size <= MAX_ELEMENTS:
        return recording

    def changed(row: list[int]) -> Recording:
        mask = np.array(row, np.bool_).reshape(elements.shape)
        return recording.with_data(id, host.from_numpy(np.where(mask, elements, np.zeros_like(elements)), data.dtype))

    full = [int(bool(x)) for x in elements.reshape(-1) != np.zeros((), elements.dtype)]
    return changed(simplified(full, lambda row: still(changed(row))))
