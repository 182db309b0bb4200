"""What a session answers, and how each answer looks on the wire.

An answer is made in the order of the stream; its content may be there only later, when the device is done. Any thread
may wait for it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ir.errors import IrError, WireError
from ir.tensor import TensorIr
from ir.wire.messages import (
    DurationResult,
    ProfileTokenResult,
    TaskResponse,
    TaskResponseContent,
    TensorResult,
    UnitResult,
    encode_response,
)
from ir.wire.release import PROTOCOL_2, Release
from ir.wire.values import Duration, ExecutionError, ProfileToken, Reason
from jax_backend.reads import ReadResult


@dataclass(frozen=True)
class Greeting:
    """The answer to a handshake: it is accepted, or refused."""

    response: TaskResponseContent
    request_id: int = 0

    def content(self) -> TaskResponseContent:
        """What goes on the wire."""
        return self.response


@dataclass(frozen=True)
class Read:
    """A read under way; `result.result()` waits for it."""

    request_id: int
    tensor: TensorIr
    result: ReadResult

    def content(self) -> TaskResponseContent:
        """The data, waited for, or why there are none."""
        return TaskResponseContent(ReadTensor=self._data())

    def _data(self) -> TensorResult:
        try:
            return TensorResult(Ok=self.result.result())
        except IrError as failure:
            return TensorResult(Err=as_execution_error(failure))


@dataclass(frozen=True)
class Sync:
    """A sync that was waited for, and the failure it reported."""

    request_id: int
    failure: IrError | None

    def content(self) -> TaskResponseContent:
        """What goes on the wire."""
        if self.failure is None:
            return TaskResponseContent(SyncBackend=UnitResult(Ok=None))
        return TaskResponseContent(SyncBackend=UnitResult(Err=as_execution_error(self.failure)))


@dataclass(frozen=True)
class Usage:
    """What the device does with a dtype: 1 stores it, 2 computes with it, 4 is fast at it."""

    request_id: int
    bits: int

    def content(self) -> TaskResponseContent:
        """What goes on the wire."""
        return TaskResponseContent(DTypeUsage=self.bits)


@dataclass(frozen=True)
class ProfileStarted:
    """A measurement began, or why not."""

    request_id: int
    token: ProfileToken | None
    failure: IrError | None = None

    def content(self) -> TaskResponseContent:
        """What goes on the wire."""
        if self.failure is None:
            return TaskResponseContent(ProfileStart=ProfileTokenResult(Ok=self.token))
        return TaskResponseContent(ProfileStart=ProfileTokenResult(Err=as_execution_error(self.failure)))


@dataclass(frozen=True)
class ProfileEnded:
    """What a measurement gave, in seconds, or why it gave nothing."""

    request_id: int
    elapsed_s: float
    failure: IrError | None = None

    def content(self) -> TaskResponseContent:
        """What goes on the wire."""
        if self.failure is not None:
            return TaskResponseContent(ProfileEnd=DurationResult(Err=as_execution_error(self.failure)))
        secs, nanos = divmod(round(self.elapsed_s * 1e9), 1_000_000_000)
        return TaskResponseContent(ProfileEnd=DurationResult(Ok=Duration(secs, nanos)))


Answer: TypeAlias = Greeting | Read | Sync | Usage | ProfileStarted | ProfileEnded


def as_execution_error(failure: IrError) -> ExecutionError:
    """A failure as Burn's clients know it. The device is never lost by one: that is what `DevicePoisoned` would say."""
    return ExecutionError(Generic=Reason(str(failure)))


def is_ready(answer: Answer) -> bool:
    """Its content is there: `encode` does not wait for the device."""
    return not isinstance(answer, Read) or answer.result.is_ready


def failure_of(response: TaskResponseContent) -> str:
    """The failure that an answer reports, or nothing."""
    payload = response.payload
    if isinstance(payload, TensorResult | UnitResult | ProfileTokenResult | DurationResult) and isinstance(
        payload.Err, ExecutionError
    ):
        reason = payload.Err.payload
        return reason.reason
    return ""


def response_of(answer: Answer) -> TaskResponse:
    """The whole answer, waited for."""
    return TaskResponse(answer.content(), answer.request_id)


def encode(response: TaskResponse, release: Release = PROTOCOL_2) -> bytes:
    """The frame of an answer. Data that the release cannot say (a scheme of quantization) become a failure."""
    try:
        return encode_response(response, release)
    except WireError as failure:
        error = as_execution_error(failure)
        return encode_response(
            TaskResponse(TaskResponseContent(ReadTensor=TensorResult(Err=error)), response.id), release
        )
