"""Runs stretches of a stream on one device, and keeps the tensors they make.

Promise: after an error the outputs of the failed operation are marked failed with the reason, whatever depends on them
too, and everything else lives on.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import numpy as np

from ir.errors import IrError, ShapeError, UnknownHandle
from ir.op import Op
from ir.segment import Rule
from ir.stream import Entry, concrete_ops, segment, survivors
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.eager import run_eagerly
from jax_backend.executable import Executable, abstract_value
from jax_backend.handles import HandleTable
from jax_backend.interpreter import OperationError
from jax_backend.launcher import Launcher, Made
from jax_backend.ops._shared import precision
from jax_backend.recorder_stats import RecorderStats
from jax_backend.rng import RandomState
from jax_backend.types import Device

_INNER_IDS: Final = 1 << 63
"""Ids from here on are ours: what stays inside a registered graph, should it run operation by operation."""
_MAX_UNREPORTED: Final = 100


class Call(NamedTuple):
    """A compiled program about to run: on what, and why it ends where it does. The donated inputs are gone after it."""

    executable: Executable
    inputs: Sequence[jax.Array]
    pack: np.ndarray | None
    rule: Rule

    def make(self) -> Sequence[jax.Array]:
        """Run it, once. Returns the outputs without waiting for them."""
        return self.executable(self.inputs, self.pack)


Watch: TypeAlias = Callable[[Call], Sequence[jax.Array]]
"""Sees a call, makes it, returns its outputs."""


class Runner:
    """The device side of a recorder.

    Args:
        device: where it runs.
        cache: programs.
        handles: the live tensors.
        random: the state of the random numbers.
        stats: what is counted.
        name: the stream, in reports.
        eager: run operation by operation, uncompiled.
        watch: makes each call of a compiled program.
        launch_ahead: make the calls in a thread of their own.
    """

    def __init__(
        self,
        device: Device,
        cache: ProgramCache,
        handles: HandleTable,
        random: RandomState,
        stats: RecorderStats,
        *,
        name: str,
        eager: bool,
        watch: Watch | None = None,
        launch_ahead: bool = False,
    ) -> None:
        self._device = device
        self._cache = cache
        self._handles = handles
        self._random = random
        self._stats = stats
        self._name = name
        self._eager = eager
        self._watch: Final = watch or Call.make
        self._launcher: Final = Launcher(name, stats) if launch_ahead else None
        self._must_settle = False
        self._inner_ids = count(_INNER_IDS)
        self._unreported: list[IrError] = []

    def run(self, entries: list[Entry], dropped: dict[int, int], rule: Rule) -> None:
        """Run `entries` as one program, then end the ids of `dropped`: id -> number of elements before its Drop.

        `rule` says why they end where they do. Where something fails, all that does not depend on it runs all the same.
        """
        self._stats.operations += sum([e.symbol.weight for e in entries])
        self._run(entries, dropped, rule)
        for id in dropped:
            self._handles.free(id)

    def fail(self, ids: Iterable[int], reason: IrError) -> None:
        """Mark tensors as failed; the first report of a failure is due at the read or sync that meets it."""
        for id in ids:
            self._handles.fail(id, reason)
        if reason not in self._unreported:
            self._unreported.append(reason)
            del self._unreported[_MAX_UNREPORTED:]
            self._stats.failures += 1

    def reported(self, reason: IrError) -> None:
        """A read has told this failure; no sync will."""
        self._hear_of_calls()
        if reason in self._unreported:
            self._unreported.remove(reason)

    def sync(self) -> None:
        """Wait for the device.

        Raises:
            IrError: the first failure that nothing has reported yet.
        """
        self._settle_pending(None)
        self._hear_of_calls()
        buffers = [self._handles.get(i) for i in self._handles.ids()]
        try:
            host.block([b.array for b in buffers if b is not None and b.array is not None])
        except IrError as reason:
            self._unreported.append(reason)
        if self._unreported:
            raise self._unreported.pop(0)

    def settle_next(self) -> None:
        """Let whatever runs next wait for all collectives that are under way."""
        self._must_settle = True

    def concrete(self, entry: Entry) -> list[Op]:
        """A graph execution as single operations, with ids of their own for what stays inside."""
        return concrete_ops(entry, self._inner_ids)

    def clear(self) -> None:
        """Forget every tensor and every failure."""
        if self._launcher is not None:
            self._launcher.close()
        self._unreported.clear()
        self._handles.clear()

    def _run(self, entries: list[Entry], dropped: dict[int, int], rule: Rule) -> None:
        """Run `entries` as one program; where something fails, all that does not depend on it runs all the same."""
        if self._handles.has_pending:
            self._settle_pending(None if self._must_settle else chain.from_iterable(e.inputs for e in entries))
        while entries:
            if self._handles.num_failed and not (entries := self._without_failed(entries)):
                return
            try:
                if self._eager:
                    with precision(self._cache.precision):
                        self._run_eager(entries)
                else:
                    self._run_compiled(entries, dropped, rule)
            except OperationError as error:
                entries = self._without_culprit(entries, error)
            except Exception as reason:
                if len(kept := self._without_failed(entries)) == len(entries):
                    # The compiler or the device: they name no operation.
                    error = reason if isinstance(reason, IrError) else IrError(f"{self._name}: {reason}")
                    self.fail(chain.from_iterable(e.outputs for e in entries), error)
                    return
                entries = kept
            else:
                return

    def _settle_pending(self, ids: Iterable[int] | None) -> None:
        """Wait for what is pending among `ids`, or for all of it."""
        self._must_settle = self._must_settle and ids is not None
        for reason in self._handles.settle(ids):
            self.fail((), reason)

    def _hear_of_calls(self) -> None:
        """Wait until the calls under way were made, and put down which of them failed."""
        if self._launcher is not None and (failures := self._launcher.wait()):
            for reason in (*failures, *self._handles.settle_launched()):
                self.fail((), reason)

    def _run_compiled(self, entries: list[Entry], dropped: dict[int, int], rule: Rule) -> None:
        part = segment(entries)
        ids = part.bindings.ids
        numbers = part.numbers
        kept = survivors(part, dropped)
        starts = part.bindings.starts

        def ends(value: int) -> bool:
            """Whether this segment uses a value for the last time."""
            return ids[value] in part.consumed or ids[value] in dropped

        outputs = frozenset([numbers[i] for i in kept])
        executable = self._cache.get(part.key, outputs, starts, ends, self._device, self._name)
        self._handles.reserve(executable.new_bytes)
        packer = executable.packer
        pack = None
        if packer.num_words:
            moving = [s for s, t in zip(starts, executable.traced, strict=True) if t]
            key = self._random.take(executable.graph.num_random) if executable.graph.num_random else ()
            pack = packer.pack(part.bindings.scalars, moving, key)
        inputs = self._inputs([ids[n] for n in executable.graph.inputs])
        taken = [(n, executable.graph.inputs[n]) for n in executable.donated]
        copied = [n for n, value in taken if not (ends(value) and self._is_sole(ids[value]))]
        wanted = set(kept)
        names = [i if (i := ids[n]) in wanted else None for n in executable.graph.outputs]
        results: Sequence[Made | None]
        if self._launcher is None:
            results = self._call(executable, inputs, copied, pack, rule)
        else:
            results = self._launcher.launch(executable, inputs, copied, pack, [name is not None for name in names])
        self._stats.programs += 1
        self._handles.free_all(part.consumed.keys())
        for id, made in zip(names, results, strict=True):
            if id is not None and made is not None:
                self._handles.put(id, made)

    def _is_sole(self, id: int) -> bool:
        """Whether no other id names the buffer of `id`, and nobody else holds it."""
        buffer = self._handles.get(id)
        return buffer is not None and buffer.owners == 1

    def _call(
        self, executable: Executable, inputs: list[Any], copied: Sequence[int], pack: np.ndarray | None, rule: Rule
    ) -> Sequence[jax.Array]:
        for n in copied:
            inputs[n] = host.copy(inputs[n])
        began = time.thread_time()
        results = self._watch(Call(executable, inputs, pack, rule))
        self._stats.program_cpu_s += time.thread_time() - began
        return results

    def _run_eager(self, entries: list[Entry]) -> None:
        part = segment(entries)
        made_inside: set[int] = set()
        inputs: dict[int, jax.Array] = {}
        for entry in entries:
            outside = [i for i in entry.inputs if i not in made_inside]
            inputs.update(zip(outside, self._inputs(outside), strict=True))
            made_inside.update(entry.outputs)
        made = run_eagerly(part, inputs, self._random, self._device, self._cache.custom_ops)
        self._handles.free_all(part.consumed.keys())
        for id in survivors(part):
            self._handles.put(id, made[id])

    def _inputs(self, ids: list[int]) -> list[Any]:
        """The arrays of `ids`; `Launched` ones where the calls that make them wait for their turn."""
        buffers = [self._handles.get(i) for i in ids]
        found = [b.array if b.pending is None else b.pending for b in buffers if b is not None]
        if len(found) != len(ids):
            raise UnknownHandle(f"{self._name}: an input of a program is missing")
        return found

    # ---- failing

    def _without_failed(self, entries: list[Entry]) -> list[Entry]:
        """`entries` without those whose inputs failed, never were, or are not what they declare; their outputs fail."""
        self._settle_pending(chain.from_iterable(e.inputs for e in entries))
        kept: list[Entry] = []
        made: set[int] = set()
        waiting = entries[::-1]
        while waiting:
            entry = waiting.pop()
            reason = self._fault(entry, made)
            if reason is None:
                kept.append(entry)
                made.update(entry.outputs)
            elif entry.symbol.weight > 1:
                waiting += self._expand(entry)[::-1]
            else:
                self._give_up(entry, reason)
                made.difference_update(entry.outputs)
        return kept

    def _fault(self, entry: Entry, made: set[int]) -> IrError | None:
        """Why an input of `entry` cannot be used; `made` are the ids that come from the same program."""
        described = {t.id.value: t for op in entry.symbol.ops for t in op.inputs}
        for place, id in enumerate(entry.inputs):
            if id in made:
                continue
            where = f"{entry.symbol.ops[0].kind}: input t{id}"
            buffer = self._handles.get(id)
            if buffer is None:
                return UnknownHandle(f"{where} was never made, or its last use is past")
            if buffer.array is None:
                return buffer.failure
            expected = abstract_value(described[place], None) if place in described else buffer.array
            if (buffer.array.shape, buffer.array.dtype) != (expected.shape, expected.dtype):
                return ShapeError(
                    f"{where} is declared as {expected.dtype}{list(expected.shape)}, "
                    f"but is {buffer.array.dtype}{list(buffer.array.shape)}"
                )
        return None

    def _without_culprit(self, entries: list[Entry], error: OperationError) -> list[Entry]:
        """`entries` without the one that `error` names."""
        place = error.position
        for n, entry in enumerate(entries):
            if place < entry.symbol.weight:
                if entry.symbol.weight > 1:
                    expanded = self._expand(entry)
                    self._give_up(expanded.pop(place), error)
                    return [*entries[:n], *expanded, *entries[n + 1 :]]
                self._give_up(entry, error)
                return entries[:n] + entries[n + 1 :]
            place -= entry.symbol.weight
        raise AssertionError("an operation error names an operation of its program")

    def _expand(self, entry: Entry) -> list[Entry]:
        """A graph execution as single operations."""
        return [self._cache.symbols.entry(op) for op in self.concrete(entry)]

    def _give_up(self, entry: Entry, reason: IrError) -> None:
        for id in entry.freed:
            self._handles.free(id)
        self.fail(entry.outputs, reason)
