"""The samples of `tests/golden` and `tests/fixtures`, and the type each of them has."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ir
from ir.ops.numeric import Distribution
from ir.wire import values
from ir.wire.messages import ExternalCommMessage, TaskResponse

TESTS = Path(__file__).parent.parent
FIXTURES = sorted((TESTS / "fixtures").glob("*.bxs"))

TYPES: dict[str, Any] = {
    "OperationIr": ir.OperationIr,
    "DType": ir.DType,
    "ScalarIr": ir.ScalarIr,
    "TensorIr": ir.TensorIr,
    "TensorId": ir.TensorId,
    "TensorData": ir.TensorData,
    "QuantScheme": ir.QuantScheme,
    "Slice": ir.SliceRange,
    "IndexingUpdateOp": ir.IndexingUpdateOp,
    "ReduceOperation": ir.ReduceOperation,
    "BoolStore": ir.BoolStore,
    "GraphBindings": ir.GraphBindings,
    "GraphIr": ir.GraphIr,
    "Distribution": Distribution,
    "TaskResponse": TaskResponse,
    "ExternalCommMessage": ExternalCommMessage,
    **{
        name: getattr(values, name)
        for name in (
            *("StreamId", "GraphId", "FloatDType", "IntDType", "QuantConfig", "DeviceSettings", "ProfileOptions"),
            *("ProfileToken", "Duration", "ExecutionError", "DTypeUsageSet"),
        )
    },
}


class Sample(NamedTuple):
    """A line of a golden file; `text` is the JSON as it stands there."""

    type: str
    variant: str
    note: str
    data: bytes
    text: bytes

    @property
    def has_non_finite(self) -> bool:
        """The bytes hold NaN or an infinity, where the JSON says null."""
        return re.search(rb"\xcb[\x7f\xff][\xf0-\xff]", self.data) is not None

    def __str__(self) -> str:
        return f"{self.type} {self.variant} ({self.note})"


@cache
def samples(name: str) -> tuple[Sample, ...]:
    """The lines of `tests/golden/<name>.jsonl`."""
    found: list[Sample] = []
    for line in (TESTS / "golden" / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        text = line.split('"json":', 1)[1].removesuffix("}").encode()
        found.append(Sample(entry["type"], entry["variant"], entry["note"], bytes.fromhex(entry["hex"]), text))
    return tuple(found)
