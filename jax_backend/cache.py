"""Key -> executable, shared by all recorders of a process.

Promise: at most one compilation per key, concurrent sessions included; a failed compilation leaves no entry; evicts by
count and bytes.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import jax

from ir.stream import SYMBOL_LIMIT, Symbol, SymbolTable, build_graph
from jax_backend.custom_ops import CustomOpRegistry, default_custom_ops
from jax_backend.executable import Config, Executable
from jax_backend.explain import explain
from jax_backend.program_store import ProgramStore
from jax_backend.types import Device

Key: TypeAlias = tuple[tuple[Symbol, ...], tuple[int, ...]]


@dataclass
class CacheStats:
    """Counts since the cache was made; times in seconds."""

    hits: int = 0
    compiles: int = 0
    loads: int = 0
    """Programs that an earlier process had compiled."""
    compiled_ops: int = 0
    evictions: int = 0
    compile_s: float = 0.0
    reasons: list[str] = field(default_factory=list)
    """Why the latest programs were compiled, oldest first, 100 at most."""

    def count(self, made: Executable, num_ops: int, elapsed_s: float, name: str, reason: str) -> str:
        """Count a program that was compiled, or loaded from disk, and remember why. Returns the line that says so."""
        if made.from_disk:
            self.loads += 1
        else:
            self.compiles += 1
            self.compiled_ops += num_ops
        self.compile_s += elapsed_s
        verb = "loaded" if made.from_disk else "compiled"
        line = f"{name}: {verb} {num_ops} ops in {elapsed_s:.2f} s: {reason}"
        self.reasons.append(line)
        del self.reasons[:-100]
        return line


class _Program:
    """The executables of one key: by device, and by what they return and hold fixed."""

    __slots__ = ("executables", "lock", "num_ops")

    def __init__(self, num_ops: int) -> None:
        self.executables: dict[Device, list[Executable]] = {}
        self.lock: Final = threading.Lock()
        self.num_ops: Final = num_ops


class ProgramCache:
    """Programs by key, least recently used last out.

    Args:
        custom_ops: what `Custom` may run; by default the ids that Burn itself sends.
        max_programs: programs kept at most.
        max_bytes: bytes of generated code kept at most.
        precision: of f32 products and convolutions; full f32 by default, where XLA would use TF32 or bf16.
        store: where programs outlive the process.
        on_compile: called on the thread that compiles with `compiling` and a line about the program, then with
            `compiled`, whether that took XLA or the disk.
    """

    def __init__(
        self,
        custom_ops: CustomOpRegistry | None = None,
        *,
        max_programs: int = 1024,
        max_bytes: int = 4 << 30,
        precision: jax.lax.Precision = jax.lax.Precision.HIGHEST,
        store: ProgramStore | None = None,
        on_compile: Callable[[str, str], None] = lambda event, line: None,
    ) -> None:
        self._store = store
        self.precision: Final = precision
        self.custom_ops: Final = default_custom_ops() if custom_ops is None else custom_ops
        self.symbols: Final = SymbolTable()
        self.stats: Final = CacheStats()
        self._on_compile = on_compile
        self._max_programs = max_programs
        self._max_bytes = max_bytes
        self._programs: OrderedDict[Key, _Program] = OrderedDict()
        self._by_first: dict[Symbol, list[Key]] = {}
        self._lock: Final = threading.Lock()

    def __len__(self) -> int:
        return len(self._programs)

    def knows(self, key: Key) -> bool:
        """Whether a program of this key has been compiled."""
        return key in self._programs

    def starting_with(self, symbol: Symbol) -> tuple[tuple[Symbol, ...], ...]:
        """The symbols of every known program that begins with `symbol`, longest first."""
        return tuple(symbols for symbols, _ in self._by_first.get(symbol, ()))

    def get(
        self,
        key: Key,
        outputs: frozenset[int],
        starts: tuple[int, ...],
        ends: Callable[[int], bool],
        device: Device,
        name: str,
    ) -> Executable:
        """The executable of `key` that returns at least `outputs`; compiled at the first need.

        Args:
            key: symbols and refs of the program.
            outputs: values that must come out.
            starts: slice starts of this execution.
            ends: whether a value that comes in is used for the last time, so that its buffer may be reused.
            device: where it runs.
            name: the stream, for the report.
        """
        program = self._programs.get(key)
        if program is None:
            with self._lock:
                program = self._programs.setdefault(key, _Program(sum(s.weight for s in key[0])))
        for executable in program.executables.get(device, ()):
            if executable.serves(outputs, starts):
                self.stats.hits += 1
                self._touch(key)
                return executable
        with program.lock:
            for executable in program.executables.get(device, ()):
                if executable.serves(outputs, starts):
                    self.stats.hits += 1
                    return executable
            try:
                return self._compile(key, program, outputs, starts, ends, device, name)
            except Exception:
                with self._lock:
                    if not program.executables:
                        self._programs.pop(key, None)
                raise

    def _compile(
        self,
        key: Key,
        program: _Program,
        outputs: frozenset[int],
        starts: tuple[int, ...],
        ends: Callable[[int], bool],
        device: Device,
        name: str,
    ) -> Executable:
        earlier = program.executables.get(device, [])
        reason = explain(key, self._programs, earlier, outputs, starts)
        # What varied once varies again: return the union of what was ever asked for, trace every start that ever moved.
        wanted = outputs.union(*(e.outputs for e in earlier))
        traced = tuple(any(e.traced[n] or e.starts[n] != s for e in earlier) for n, s in enumerate(starts))
        self._on_compile("compiling", f"{name}: {program.num_ops} ops: {reason}")
        began = time.perf_counter()
        graph = build_graph(*key, sorted(wanted))
        donations = tuple(n for n, value in enumerate(graph.inputs) if ends(value))
        config = Config(self.custom_ops, self.precision, self._store)
        executable = Executable(graph, device, starts, traced, donations, config)
        elapsed = time.perf_counter() - began
        executable.reason, executable.compile_s = reason, elapsed
        with self._lock:
            if not program.executables:
                self._index(key)
            kept = [e for e in earlier if not (e.outputs <= executable.outputs and all(traced))]
            program.executables[device] = [executable, *kept]
            line = self.stats.count(executable, program.num_ops, elapsed, name, reason)
            self._evict()
        self._on_compile("compiled", line)
        return executable

    def _index(self, key: Key) -> None:
        keys = self._by_first.setdefault(key[0][0], [])
        keys.append(key)
        keys.sort(key=lambda k: -len(k[0]))

    def _touch(self, key: Key) -> None:
        try:
            self._programs.move_to_end(key)
        except KeyError:  # evicted by another session meanwhile; the executable at hand still serves
            return

    def _evict(self) -> None:
        def too_large() -> bool:
            used = sum(e.size_bytes for e in self.executables())
            return len(self._programs) > self._max_programs or used > self._max_bytes

        while len(self._programs) > 1 and too_large():
            key, _ = self._programs.popitem(last=False)
            if key in (keys := self._by_first.get(key[0][0], [])):
                keys.remove(key)
            self.stats.evictions += 1
        if len(self.symbols) > SYMBOL_LIMIT:
            self.symbols.keep_only({symbol for symbols, _ in self._programs for symbol in symbols})

    def executables(self) -> Iterator[Executable]:
        """Every executable that is kept, least recently used program first."""
        for program in self._programs.values():
            for executables in program.executables.values():
                yield from executables
