"""The server beside everything else that could run the same training program, all in one run on one machine.

    python scripts/bench_server.py [--parts rate,steps,long,first] [--models mlp,cnn] [--rows plain,fusion]
                                   [--device cpu|gpu] [--clients DIR] [--cache DIR] [--limit-s S] [--within-s S]

Parts:
    rate   Small operations per second of processor time: recorded sessions of 40 steps, through the socket and without.
    steps  Milliseconds per step of the programs of `tests/burn/digits bench`: through this server, in JAX written by
           hand, the client's own floor (a server that only answers reads), Burn on Flex and on ndarray in process,
           and through Burn's own server with Flex. For a plain client and for one with Burn's `fusion`. Budgets: wall,
           with fusion the larger of 1.3x JAX and 1.1x the floor (on a GPU 1.15x and 1.1x), else the larger of 2x JAX
           and 1.3x the floor; the server's own time 0.3x the plain client's floor. On a GPU also device time, 1.1x.
    long   1,000 steps: the last step that compiled anything, and resident memory.
    first  Seconds to the end of step 1 and of step 20, without and with what an earlier process left on disk.

Each figure is printed when it is there, a table when its part is done. What takes longer than `--limit-s` (one program)
or `--within-s` (everything) is ended, and says so.

The Rust clients are built, where cargo is. Elsewhere `--clients DIR` names a folder with the executables `plain` and
`fusion`, made by `cargo build --release --features bench` and `--features bench,fusion` in `tests/burn/digits`: each is
the binary `digits`, and needs nothing beside it. `--cache DIR` keeps compiled programs from one call to the next.
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from _bench import report
from _processes import ROOT, Failed, Server, Steps, floor_server, run

CLIENTS = ("plain", "fusion")
BURN = ("flex", "ndarray", "remote")
"""Burn's own ways to run a program; `remote` is its server, with Flex."""
WARM_UP = {"plain": 20, "fusion": 60}
"""Steps until a client has settled: with fusion it tries ways to cut its graphs until about step 50."""
TRACED_STEPS = 50
SMALL_DECODER = ["--batch", "4", "--width", "128", "--length", "64", "--vocabulary", "512"]
TOLERANCE = 0.02
"""Relative, of the first loss that is read, between any two ways to run a program."""

Row = tuple[object, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Program:
    """Arguments of `digits bench`, those that make it small enough for a CPU, and how many steps are timed."""

    arguments: Sequence[str]
    small: Sequence[str] = ()
    steps: int = 200


PROGRAMS = {
    "digits-mlp": Program(["digits-mlp"], steps=400),
    "digits-cnn": Program(["digits-cnn"]),
    "digits-transformer": Program(["digits-transformer"], steps=100),
    "digits-lstm": Program(["digits-lstm"], steps=100),
    "mlp": Program(["mlp"], steps=400),
    "cnn": Program(["cnn"], ["--batch", "16"], steps=100),
    "decoder-2": Program(["decoder", "--layers", "2"], SMALL_DECODER, steps=50),
    "decoder-6": Program(["decoder", "--layers", "6"], SMALL_DECODER, steps=50),
}


@dataclass
class Measured:
    """Milliseconds per step: by the wall, and on a GPU of the device. Of our server also its threads' processor time.

    `own` is the session's threads outside of calls of programs, `loop` the event loop, `calls` those calls.
    """

    wall: float
    steps: Steps
    device: float = 0.0
    own: float = 0.0
    loop: float = 0.0
    calls: float = 0.0


class Bench:
    """What the parts share; a context manager.

    Args:
        given: the command line.
        clients: executable of each kind of client.
    """

    def __init__(self, given: argparse.Namespace, clients: dict[str, Path]) -> None:
        self.given = given
        self.clients = clients
        self.is_gpu = given.device == "gpu"
        self.until = self._end = time.monotonic() + given.within_s
        self._stack = ExitStack()
        self._steady: Server | None = None

    def __enter__(self) -> "Bench":
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._cache = Path(self.given.cache).resolve() if self.given.cache else self._folder / "cache"
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def next_program(self) -> None:
        """Give the program that is measured now its time."""
        self.until = min(self._end, time.monotonic() + self.given.limit_s)

    def say(self, text: str) -> None:
        """Print a line at once; beside JSON to stderr."""
        print(text, file=sys.stderr if self.given.json else sys.stdout, flush=True)

    def tried(self, what: str, measure: Callable[[], T]) -> T | None:
        """What `measure` returns, or None where it fails; either way a line says so."""
        began = time.monotonic()
        try:
            found = measure()
        except Failed as failure:
            self.say(f"{what}: no figure: {failure}")
            return None
        figure = f"{found.wall:.3g} ms per step, " if isinstance(found, Measured) else ""
        self.say(f"{what}: {figure}measured in {time.monotonic() - began:.0f} s")
        return found

    def command(self, client: str, name: str, *options: str, steps: int, read_every: int) -> list[str]:
        """The command of a Rust client."""
        return [str(self.clients[client]), "bench", *self._arguments(name, steps, read_every), *options]

    def _arguments(self, name: str, steps: int, read_every: int) -> list[str]:
        program = PROGRAMS[name]
        sizes = [] if self.is_gpu else program.small
        return [*program.arguments, *sizes, "--steps", str(steps), "--read-every", str(read_every)]

    def server(self, *options: str, cache: Path | None = None, trace: Path | None = None) -> Server:
        """This project's server."""
        precision = ("--precision", self.given.precision)
        return Server(self.given.device, *precision, *options, cache=cache, trace=trace, until=self.until)

    def steady_server(self) -> Server:
        """The one that all steady steps are measured with: one start, and each program compiled once."""
        if self._steady is None or not self._steady.is_running:
            trace = self._folder / "trace" if self.is_gpu else None
            self._steady = self._stack.enter_context(self.server(cache=self._cache / "server", trace=trace))
        return self._steady

    def run_jax(self, name: str, *options: str, steps: int, read_every: int, cached: bool = False) -> Steps:
        """Run the step in JAX."""
        given = ["--precision", self.given.precision, *options]
        command = [sys.executable, str(ROOT / "scripts/_models.py"), *self._arguments(name, steps, read_every), *given]
        cache = {"JAX_COMPILATION_CACHE_DIR": str(self._cache / "jax")} if cached else {}
        return run(command, until=self.until, JAX_PLATFORMS="cuda" if self.is_gpu else "cpu", **cache)

    def plan(self, client: str, name: str) -> tuple[int, int, int]:
        """Steps to warm up, steps to time, and after how many of them the loss is read."""
        every = self.given.read_every
        return _ceil(WARM_UP[client], every), _ceil(self.given.steps or PROGRAMS[name].steps, every), every

    def typical_ms(self, steps: Steps, first: int, every: int, last: int | None = None) -> float:
        """Milliseconds per step from `first` to `last`: of the median block, or of the quickest one (`--best`)."""
        blocks = steps.block_ms(first, every, last)
        return min(blocks) if self.given.best else statistics.median(blocks)


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def check_losses(name: str, *found: Measured | None) -> None:
    """Compare the first loss that each run read.

    Raises:
        Failed: they differ: the runs did not compute the same.
    """
    values = [next(iter(one.steps.losses.values())) for one in found if one is not None]
    if values and max(values) - min(values) > TOLERANCE * max(map(abs, values)):
        raise Failed(f"{name}: expected the same first loss from every run, got {values}")


# ---- small operations


RATE_COLUMNS = ("what", "messages/s", "operations/s", "us per message", "budget, messages/s")
RATE_STEPS = 40


def rate_rows(bench: Bench, name: str) -> Iterator[Row]:
    """How fast a session of a plain client is taken in."""
    from _server_rate import rows

    with tempfile.TemporaryDirectory() as folder:
        with bench.server("--capture", folder) as server:
            command = bench.command("plain", name, "--url", server.url, steps=RATE_STEPS, read_every=10)
            run(command, until=bench.until)
        (capture,) = Path(folder).glob("*.bxs")
        yield from rows(name, capture, "cpu")


# ---- steps


def through_server(bench: Bench, client: str, name: str) -> Measured:
    """Run a client against this project's server."""
    warm, steps, every = bench.plan(client, name)
    timed, traced = warm + steps, _ceil(TRACED_STEPS, every) if bench.is_gpu else 0
    server = bench.steady_server()
    marks: dict[int, dict[str, float]] = {}
    traces: list[Path] = []

    def at_step(step: int) -> None:
        if step in (warm, timed):
            marks[step] = server.metrics()
        if traced and step == timed:
            server.start_trace()
        if traced and step == timed + traced:
            traces.append(server.stop_trace())

    # More steps than are looked at: the last ones run while the profiler is ended.
    command = bench.command(client, name, "--url", server.url, steps=timed + traced + 1, read_every=every)
    known = len(server.compiles)
    try:
        found = run(command, at_step, stops=(timed, timed + traced) if traced else (), until=bench.until)
    finally:
        for event in server.compiles[known:]:
            bench.say(f"  {event['text']}")
    spent = {key: (value - marks[warm][key]) * 1e3 / steps for key, value in marks[timed].items()}
    measured = Measured(bench.typical_ms(found, warm, every, timed), found)
    measured.calls, measured.loop = spent["program_cpu_seconds_total"], spent["loop_cpu_seconds_total"]
    measured.own = spent["session_cpu_seconds_total"] - measured.calls
    if traced:
        measured.device = _device_ms(bench, traces[0], bench.typical_ms(found, timed, every, timed + traced))
    return measured


def _device_ms(bench: Bench, trace: Path, wall_ms: float) -> float:
    """Device time per step: the share of the traced time in which the device works; NaN where the trace has none."""
    from _device_time import busy_share

    try:
        return busy_share(trace) * wall_ms
    except FileNotFoundError as reason:
        bench.say(f"no device time: {reason}")
        return math.nan


def in_jax(bench: Bench, name: str) -> Measured:
    """Run the hand-written step."""
    warm, steps, every = bench.plan("plain", name)
    if not bench.is_gpu:
        found = bench.run_jax(name, steps=warm + steps, read_every=every, cached=True)
        return Measured(bench.typical_ms(found, warm, every), found)
    timed, traced = warm + steps, _ceil(TRACED_STEPS, every)
    with tempfile.TemporaryDirectory() as folder:
        options = ("--trace", folder, "--trace-from", str(timed + 1))
        found = bench.run_jax(name, *options, steps=timed + traced, read_every=every, cached=True)
        device = _device_ms(bench, Path(folder), bench.typical_ms(found, timed, every))
    return Measured(bench.typical_ms(found, warm, every, timed), found, device)


def floor(bench: Bench, client: str, name: str) -> Measured:
    """Run the client alone."""
    warm, steps, every = bench.plan(client, name)
    with floor_server() as url:
        command = bench.command(client, name, "--url", url, steps=warm + steps, read_every=every)
        found = run(command, until=bench.until)
    return Measured(bench.typical_ms(found, warm, every), found)


def in_burn(bench: Bench, name: str, way: str) -> Measured:
    """Run a backend of Burn's, one of `BURN`."""
    every = bench.given.read_every
    steps = _ceil(min(bench.given.steps or PROGRAMS[name].steps, 100), every) + every

    def measured(*options: str) -> Measured:
        found = run(bench.command("plain", name, *options, steps=steps, read_every=every), until=bench.until)
        return Measured(bench.typical_ms(found, every, every), found)

    if way != "remote":
        return measured("--device", way)
    from tests.burn.digits import stock_server

    with stock_server(bench.clients["plain"]) as url:
        return measured("--url", url)


STEP_COLUMNS = (
    *("program", "client", "ours", "budget", "JAX", "floor", "Flex", "ndarray", "Burn's server"),
    *("own time", "budget of own", "loop", "in calls"),
)
DEVICE_COLUMNS = ("device", "budget of device", "JAX device")


def step_rows(bench: Bench, name: str) -> Iterator[Row]:
    """One row per kind of client; of several rounds the least of each figure counts, for JAX, floor and server."""
    ways = {way: lambda way=way: in_burn(bench, name, way) for way in bench.given.burn}
    burn = [bench.tried(f"{name}, Burn: {way}", ways[way]) if way in ways else None for way in BURN]
    by_jax, by_floor, by_server = _Least(), _Least(), _Least()
    for _ in range(bench.given.rounds):
        by_jax.add("", bench.tried(f"{name}, JAX", lambda: in_jax(bench, name)))
        for client in bench.given.rows:
            by_floor.add(client, bench.tried(f"{name}, {client}, floor", lambda c=client: floor(bench, c, name)))
            ours = bench.tried(f"{name}, {client}, ours", lambda c=client: through_server(bench, c, name))
            by_server.add(client, ours)
    jax, plain = by_jax.get(""), by_floor.get("plain")
    for client in bench.given.rows:
        ours, alone = by_server.get(client), by_floor.get(client)
        if ours is None:
            continue  # a line has said why
        check_losses(name, ours, jax, *burn)
        jax_factor, floor_factor = (2.0, 1.3) if client == "plain" else (1.15 if bench.is_gpu else 1.3, 1.1)
        budget = max(jax_factor * jax.wall, floor_factor * alone.wall) if jax and alone else ""
        others = [one.wall if one else "" for one in (jax, alone, *burn)]
        own = [ours.own, 0.3 * plain.wall if plain else "", ours.loop, ours.calls]
        device = [ours.device, *([1.1 * jax.device, jax.device] if jax else ["", ""])] if bench.is_gpu else []
        yield (name, client, ours.wall, budget, *others, *own, *device)


class _Least:
    """Of each key the measurement with the least wall time."""

    def __init__(self) -> None:
        self._found: dict[str, Measured] = {}

    def add(self, key: str, measured: Measured | None) -> None:
        if measured is not None:
            self._found[key] = min(self._found.get(key, measured), measured, key=lambda m: m.wall)

    def get(self, key: str) -> Measured | None:
        return self._found.get(key)


# ---- long runs, first steps


LONG_COLUMNS = (
    *("program", "client", "programs", "last compiled in step", "budget"),
    *("MiB", "at step", "growth until 1,000, %", "budget of it"),
)


def long_rows(bench: Bench, name: str) -> Iterator[Row]:
    """1,000 steps of each kind of client: when programs are compiled, and memory."""
    from _server_rate import last_new_graph

    steps, every = 1000, bench.given.long_read_every
    for client in bench.given.rows:
        resident: dict[int, int] = {}
        with tempfile.TemporaryDirectory() as folder, bench.server("--capture", folder) as server:

            def at_step(step: int, server: Server = server, resident: dict[int, int] = resident) -> None:
                if step % 50 == 0 or step == 10:
                    resident[step] = server.resident_bytes()

            command = bench.command(client, name, "--url", server.url, steps=steps, read_every=every)
            found = run(command, at_step, until=bench.until)
            compiled = [event["time"] for event in server.compiles]
            (capture,) = Path(folder).glob("*.bxs")
            reads = last_new_graph(capture)
        last = max(sum(end < time for end in found.ended_s) for time in compiled)
        allowed = 3 if client == "plain" else max(3, reads * every)
        settled = 10 if client == "plain" else _ceil(allowed, 50) + 50
        growth = resident[1000] / resident[settled] - 1
        yield (name, client, len(compiled), last, allowed, resident[settled] / 2**20, settled, growth * 100, 2)


FIRST_COLUMNS = ("program", "client", "disk cache", "s to step 1", "s to step 20", "programs")


def first_rows(bench: Bench, name: str) -> Iterator[Row]:
    """Seconds to steps 1 and 20: JAX, then both kinds of client without and with programs on disk."""
    steps = bench.run_jax(name, steps=20, read_every=1)
    yield (name, "JAX", "", steps.until_s(1), steps.until_s(20), "")
    for client in bench.given.rows:
        with tempfile.TemporaryDirectory() as folder:
            for disk in ("cold", "warm"):
                with bench.server(cache=Path(folder)) as server:
                    command = bench.command(client, name, "--url", server.url, steps=20, read_every=1)
                    steps = run(command, until=bench.until)
                    compiled = [event["text"] for event in server.compiles]
                yield (name, client, disk, steps.until_s(1), steps.until_s(20), len(compiled))


# ---- all together


def executables(folder: str | None) -> dict[str, Path]:
    """The Rust clients, built where none are given."""
    if folder:
        return {client: Path(folder).resolve() / client for client in CLIENTS}
    from tests.burn.digits import DIGITS
    from tests.burn.oracle import build

    return {
        "plain": build(DIGITS, features=["bench"], release=True),
        "fusion": build(DIGITS, features=["bench", "fusion"], release=True),
    }


def table(
    bench: Bench,
    title: str,
    columns: Sequence[str],
    rows: Callable[[Bench, str], Iterator[Row]],
    models: Sequence[str] | None = None,
) -> None:
    """Print the rows of all programs, each when it is there and all together; a program that fails ends no other."""
    found: list[Row] = []
    for name in models or bench.given.models:
        bench.next_program()
        try:
            for row in rows(bench, name):
                found.append(row)
                bench.say("  ".join(f"{c} {_short(v)}" for c, v in zip(columns, row, strict=True) if v != ""))
        except Failed as failure:
            bench.say(f"{name}: no more rows: {failure}")
    report(title, columns, found)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A type of the command line: some of `known`, with commas."""

    def names(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        return found

    return names


PARTS = ("rate", "steps", "long", "first")


def command_line() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=names_of(PARTS), default=list(PARTS))
    parser.add_argument("--models", type=names_of(list(PROGRAMS)), default=list(PROGRAMS))
    parser.add_argument("--rows", type=names_of(CLIENTS), default=list(CLIENTS), help="kinds of client")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--precision", default="highest", choices=["highest", "default"])
    parser.add_argument("--clients", help="folder of the executables `plain` and `fusion`; by default they are built")
    parser.add_argument("--cache", help="folder that keeps compiled programs of steady steps; by default none is kept")
    parser.add_argument(
        "--burn", type=names_of(BURN), help="backends of Burn's; by default all on a CPU, none on a GPU"
    )
    parser.add_argument("--steps", type=int, help="to time; by default as many as suit the program")
    parser.add_argument("--read-every", type=int, default=10)
    parser.add_argument("--long-read-every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="of JAX, floor and server, in turn; the least counts")
    parser.add_argument(
        "--best", action="store_true", help="the quickest block of steps, not the median: where others work"
    )
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds for the rows of one program")
    parser.add_argument("--within-s", type=float, default=86_400.0, help="seconds for everything")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.burn is None:
        given.burn = list(BURN) if given.device == "cpu" else []
    return given


def main() -> None:
    """Print one table per part."""
    given = command_line()
    with Bench(given, executables(given.clients)) as bench:
        if "rate" in given.parts:
            table(bench, "Small operations", RATE_COLUMNS, rate_rows, ("digits-lstm", "digits-transformer"))
        if "steps" in given.parts:
            columns = (*STEP_COLUMNS, *(DEVICE_COLUMNS if bench.is_gpu else ()))
            table(
                bench,
                f"ms per step, read every {given.read_every}{', quickest block' * given.best}",
                columns,
                step_rows,
            )
        if "long" in given.parts:
            table(bench, "1,000 steps", LONG_COLUMNS, long_rows)
        if "first" in given.parts:
            table(bench, "First steps", FIRST_COLUMNS, first_rows)


if __name__ == "__main__":
    main()
