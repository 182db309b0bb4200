"""Makes a difference small: fewer axes, fewer elements, simpler values, as long as it stays a difference."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ir.errors import IrError
from ir.registry import forms
from ir.tensor import TensorId
from ir.wire.capture import write_messages
from ir.wire.messages import (
    ReadTensor,
    RegisterAlias,
    RegisterOperation,
    RegisterTensor,
    RemoteMessage,
    Seed,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
)
from ir.wire.values import ExecutionError, Reason, StreamId
from jax_backend.shrinking import simplified
from tests.burn.case import Case, fill
from tests.burn.compare import Difference, Outcome, compare
from tests.burn.differential import Found, Judge
from tests.burn.draw import ELEMENT_CHOICES, Draw
from tests.burn.exemptions import exemption
from tests.burn.generators import plan

SEED = 0
FRESH = 8
"""Rows of random elements that a simpler structure is tried with."""
STREAM = StreamId(0)


def replayed(judge: Judge, found: Found) -> Difference | None:
    """The difference that the choices of `found` lead to, if it is one and is not known."""
    form = forms()[found.path]
    try:
        case = fill(form, plan(form, Draw(found.structure), found.dtype), Draw(found.elements), 0)
    except (IrError, AssertionError, ValueError):
        return None  # choices that fit another structure
    difference = compare(case, judge.burn([case], SEED)[0], judge.ours([case], SEED)[0], "compiled")
    return None if difference is None or exemption(difference) else difference


def shrink(judge: Judge, found: Found, *, seconds: float) -> Found:
    """A smaller difference of the same form and dtype; `found` itself if nothing smaller differs, or time is up."""
    end = time.monotonic() + seconds
    best = found

    def differs(structure: list[int], rows: Sequence[list[int]]) -> bool:
        """Whether some row of elements differs on `structure`; then it is the best so far."""
        nonlocal best
        for elements in rows:
            candidate = best._replace(structure=structure, elements=elements)
            difference = replayed(judge, candidate) if time.monotonic() < end else None
            if difference is not None:
                best = candidate._replace(text=str(difference))
                return True
        return False

    # Another structure puts the old elements elsewhere, so that others have to be looked for.
    rng = np.random.default_rng(0)
    fresh = [rng.integers(0, ELEMENT_CHOICES, 2 * len(found.elements)).tolist() for _ in range(FRESH)]
    before = None
    while before != (best.structure, best.elements):
        before = best.structure, best.elements
        simplified(best.structure, lambda row: differs(row, [best.elements, *fresh]))
        simplified(best.elements, lambda row: differs(best.structure, [row]))
    return best


def messages(case: Case, burn: Outcome) -> list[RemoteMessage | TaskResponse]:
    """The case as a recorded session, with Burn's answers."""
    made: list[RemoteMessage | TaskResponse] = [Seed(SEED)]
    made += [RegisterTensor(STREAM, TensorId(id), data) for id, data in case.tensors.items()]
    made += [RegisterAlias(STREAM, TensorId(new), TensorId(source)) for new, source in case.aliases]
    made.append(RegisterOperation(STREAM, case.operation))
    for number, tensor in enumerate(case.reads, 1):
        made.append(ReadTensor(number, STREAM, tensor))
        if burn.refusal is None:
            result = TensorResult(Ok=burn.reads[number - 1])
        else:
            result = TensorResult(Err=ExecutionError(Generic=Reason(burn.refusal)))
        made.append(TaskResponse(TaskResponseContent(ReadTensor=result), number))
    return made


def save(difference: Difference, path: Path) -> None:
    """Write the case as a capture, which `burn-xla run --check` compares with Burn's answers."""
    write_messages(
        path, messages(difference.case, difference.burn), "Burn 0.22.1, Flex, fuzz_against_burn.py", "/request"
    )
