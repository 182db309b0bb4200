"""Makes the calls of a session's programs in a thread of its own, while the session records on.

On a GPU a call costs the processor microseconds per kernel, milliseconds for a large program, and XLA holds no
interpreter lock meanwhile. A session that made its calls itself would not take in what comes next until then.

Promise: calls are made in their order; a call whose input failed fails with that reason, and no other call is touched.
"""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeAlias

import jax
import numpy as np

from ir.errors import IrError, ShapeError
from jax_backend import host
from jax_backend.executable import ArrayType, Executable
from jax_backend.recorder_stats import RecorderStats

MAX_UNDER_WAY: Final = 32
"""Calls that wait for their turn, until `launch` waits too."""


class Launched:
    """A result of a call that was made, or will be; it is a `Pending` of `jax_backend.handles`."""

    __slots__ = ("_call", "array", "failure", "type")

    def __init__(self, type: ArrayType) -> None:
        self.type: Final = type
        self.array: jax.Array | None = None
        """The result, once the call was made; the device may still work on it."""
        self.failure: IrError | None = None
        self._call: Future[None] | None = None

    def begin(self, call: "Future[None]") -> None:
        """Say what to wait for."""
        self._call = call

    def result(self) -> jax.Array:
        """The array; waits until the call was made, not for the device.

        Raises:
            IrError: the call failed.
        """
        if self._call is not None:
            self._call.result()
        return self.made()

    def made(self) -> jax.Array:
        """The array of a call that was made.

        Raises:
            IrError: the call failed.
        """
        if self.failure is not None:
            raise self.failure
        assert self.array is not None
        return self.array


Made: TypeAlias = jax.Array | Launched
"""An array, or what stands for one."""


class Launcher:
    """The calls of one session. The thread exists from the first one on, and ends with `close` or with this object.

    Args:
        name: the session, in reports.
        stats: what is counted.
    """

    def __init__(self, name: str, stats: RecorderStats) -> None:
        self._name = name
        self._stats = stats
        self._executor = self._new_thread()
        self._under_way: deque[Future[None]] = deque()
        self._failures: deque[IrError] = deque()

    def launch(
        self,
        executable: Executable,
        inputs: Sequence[Made],
        copied: Sequence[int],
        pack: np.ndarray | None,
        wanted: Sequence[bool],
    ) -> list[Launched | None]:
        """Call a program in its turn.

        Args:
            executable: the program.
            inputs: arrays, or results of earlier calls. The donated ones are gone after it.
            copied: places of inputs that are donated and that somebody else still needs.
            pack: its scalars, where it has any.
            wanted: per output, whether anybody does.

        Returns:
            What stands for the outputs; None for those that nobody wants.

        Raises:
            ShapeError: an input has another shape or dtype than the program takes.
        """
        types = [i.type if isinstance(i, Launched) else (i.shape, i.dtype) for i in inputs]
        if types != executable.input_types:
            pairs = zip(types, executable.input_types, strict=True)
            wrong = "; ".join(f"{got} for {want}" for got, want in pairs if got != want)
            raise ShapeError(f"{self._name}: the program does not take its inputs: {wrong}")
        named = zip(executable.output_types, wanted, strict=True)
        outputs = [Launched(type) if is_wanted else None for type, is_wanted in named]
        if len(self._under_way) >= MAX_UNDER_WAY:
            self._under_way.popleft().result()
        call = self._executor.submit(self._call, executable, inputs, copied, pack, outputs)
        for output in outputs:
            if output is not None:
                output.begin(call)
        self._under_way.append(call)
        return outputs

    def wait(self) -> list[IrError]:
        """Wait until all calls were made, not for the device. Returns what failed since the last time, oldest first."""
        if self._under_way:
            self._under_way[-1].result()
            self._under_way.clear()
        failures = list(self._failures)
        self._failures.clear()
        return failures

    def close(self) -> None:
        """Wait until all calls were made, and end the thread."""
        self._executor.shutdown()
        self._executor = self._new_thread()
        self._under_way.clear()
        self._failures.clear()

    def _new_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, f"launcher of {self._name}")

    def _call(
        self,
        executable: Executable,
        inputs: Sequence[Made],
        copied: Sequence[int],
        pack: np.ndarray | None,
        outputs: Sequence[Launched | None],
    ) -> None:
        try:
            arrays = [value.made() if isinstance(value, Launched) else value for value in inputs]
        except IrError as reason:  # it is on record since the call that failed
            _fail(outputs, reason)
            return
        began = time.thread_time()
        try:
            for place in copied:
                arrays[place] = host.copy(arrays[place])
            results = executable(arrays, pack)
        except Exception as reason:
            failure = reason if isinstance(reason, IrError) else IrError(f"{self._name}: {reason}")
            self._failures.append(failure)
            _fail(outputs, failure)
        else:
            for output, array in zip(outputs, results, strict=True):
                if output is not None:
                    output.array = array
        ended = time.thread_time()
        self._stats.program_cpu_s += ended - began
        self._stats.launcher_cpu_s = ended


def _fail(outputs: Sequence[Launched | None], failure: IrError) -> None:
    for output in outputs:
        if output is not None:
            output.failure = failure
