"""Small recorded sessions, made by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import ir
from ir import F32, Add, MulScalar, operation, scalar, tensor
from ir.tensor import TensorData, TensorId
from ir.wire.codec import json_text, to_named
from ir.wire.messages import (
    ReadTensor,
    RegisterOperation,
    RegisterTensor,
    RemoteMessage,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
    message_to_json,
)
from ir.wire.release import PROTOCOL_2
from ir.wire.values import StreamId
from jax_backend.host import from_numpy

FIXTURES = Path(__file__).parent / "fixtures"
STREAM = StreamId(0)


def f32(*values: float) -> TensorData:
    """A vector."""
    return from_numpy(np.array(values, np.float32), F32)


def doubled_sum(values: Sequence[float], answer: Sequence[float]) -> list[RemoteMessage | TaskResponse]:
    """Upload x, compute (x + x) * 1.5, read it; the recorded answer is `answer`."""
    shape = (len(values),)
    x, total, out = (tensor(n, shape, F32) for n in range(3))
    made = [tensor(t.id.value, shape, F32, ir.NOT_INIT) for t in (total, out)]
    return [
        RegisterTensor(STREAM, TensorId(0), f32(*values)),
        RegisterOperation(STREAM, operation(Add(x, x, made[0]))),
        RegisterOperation(STREAM, operation(MulScalar(total, scalar(1.5), made[1]))),
        ReadTensor(7, STREAM, out),
        TaskResponse(TaskResponseContent(ReadTensor=TensorResult(Ok=f32(*answer))), 7),
    ]


def as_lines(messages: Sequence[RemoteMessage | TaskResponse]) -> bytes:
    """The session as JSON lines."""
    lines = [
        json_text(to_named(m, PROTOCOL_2)) if isinstance(m, TaskResponse) else message_to_json(m) for m in messages
    ]
    return b"\n".join(lines) + b"\n"
