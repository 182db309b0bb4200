"""The server beside everything else that could run the same training program, all in one run on one machine.

    python scripts/bench_server.py [--parts rate,steps,long,first] [--only mlp,cnn] [--device cpu|gpu] [--json]

Parts:
    rate   Small operations per second of processor time: a recorded session through the socket, and without it.
    steps  Milliseconds per step of the programs of `tests/burn/digits bench`: through this server, in JAX written by
           hand, the client's own floor (a server that only answers reads), Burn on Flex and on ndarray in process,
           and through Burn's own server with Flex. For a plain client and for one with Burn's `fusion`. Budgets: wall,
           with fusion the larger of 1.3x JAX and 1.1x the floor (on a GPU 1.15x and 1.1x), else the larger of 2x JAX
           and 1.3x the floor; the server's own time 0.3x the plain client's floor. On a GPU also device time, 1.1x.
    long   1,000 steps: the last step that compiled anything, and resident memory.
    first  Seconds to the end of step 1 and of step 20, without and with what an earlier process left on disk.

`--clients DIR` names a folder with the executables `plain` and `fusion`, where no cargo is; `--burn` leaves out
columns.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from _bench import report
from _processes import ROOT, Failed, Server, Steps, floor_server, run

CLIENTS = ("plain", "fusion")
WARM_UP = {"plain": 20, "fusion": 120}
"""Steps until a client has settled: with fusion it tries ways to cut its graphs until about step 50."""
SMALL_DECODER = ["--batch", "4", "--width", "128", "--length", "64", "--vocabulary", "512"]
TOLERANCE = 0.02
"""Relative, of the first loss that is read, between any two ways to run a program."""


@dataclass(frozen=True)
class Program:
    """Arguments of `digits bench`, and those that make it small enough for a CPU."""

    arguments: Sequence[str]
    small: Sequence[str] = ()


PROGRAMS = {
    "digits-mlp": Program(["digits-mlp"]),
    "digits-cnn": Program(["digits-cnn"]),
    "digits-transformer": Program(["digits-transformer"]),
    "digits-lstm": Program(["digits-lstm"]),
    "mlp": Program(["mlp"]),
    "cnn": Program(["cnn"], ["--batch", "16"]),
    "decoder-2": Program(["decoder", "--layers", "2"], SMALL_DECODER),
    "decoder-6": Program(["decoder", "--layers", "6"], SMALL_DECODER),
}


class Bench:
    """What the parts share.

    Args:
        given: the command line.
        clients: executable of each kind of client.
        cache: folder for compiled programs: where steady steps are measured, compiling once is enough.
    """

    def __init__(self, given: argparse.Namespace, clients: dict[str, Path], cache: Path) -> None:
        self.given = given
        self.clients = clients
        self.cache = cache
        self.is_gpu = given.device == "gpu"
        self.names = given.only.split(",") if given.only else list(PROGRAMS)

    def command(self, client: str, name: str, *options: str, steps: int, read_every: int) -> list[str]:
        """The command of a Rust client."""
        return [str(self.clients[client]), "bench", *self._arguments(name, steps, read_every), *options]

    def jax_command(self, name: str, *options: str, steps: int, read_every: int) -> list[str]:
        """The command of the step in JAX."""
        script = str(ROOT / "scripts/_models.py")
        precision = ["--precision", self.given.precision]
        return [sys.executable, script, *self._arguments(name, steps, read_every), *precision, *options]

    def _arguments(self, name: str, steps: int, read_every: int) -> list[str]:
        program = PROGRAMS[name]
        sizes = [] if self.is_gpu else program.small
        return [*program.arguments, *sizes, "--steps", str(steps), "--read-every", str(read_every)]

    def server(self, *options: str, cache: Path | None = None, trace: Path | None = None) -> Server:
        """This project's server."""
        precision = ("--precision", self.given.precision)
        return Server(self.given.device, *precision, *options, cache=cache, trace=trace)

    def run_jax(self, name: str, *options: str, steps: int, read_every: int) -> Steps:
        """Run the step in JAX."""
        command = self.jax_command(name, *options, steps=steps, read_every=read_every)
        return run(command, JAX_PLATFORMS="cuda" if self.is_gpu else "cpu")


def check_losses(name: str, *found: Steps) -> None:
    """Compare the first loss that each run read.

    Raises:
        Failed: they differ: the runs did not compute the same.
    """
    values = [next(iter(steps.losses.values())) for steps in found if steps.losses]
    if max(values) - min(values) > TOLERANCE * max(map(abs, values)):
        raise Failed(f"{name}: expected the same first loss from every run, got {values}")


# ---- steps


@dataclass
class Measured:
    """Milliseconds per step through the server: by the wall, of its threads' processor time, on the device.

    `own` is the session's threads outside of calls of programs, `loop` the event loop, `calls` those calls.
    """

    wall: float
    own: float
    loop: float
    calls: float
    device: float
    steps: Steps


def through_server(bench: Bench, client: str, name: str) -> Measured:
    """Run a client against this project's server."""
    warm, steps, every = _plan(bench, client)
    marks: list[dict[str, float]] = []
    with bench.server(cache=bench.cache) as server:

        def at_step(step: int) -> None:
            if step in (warm, warm + steps):
                marks.append(server.metrics())

        command = bench.command(client, name, "--url", server.url, steps=warm + steps, read_every=every)
        found = run(command, at_step)
    spent = {key: (marks[1][key] - marks[0][key]) * 1e3 / steps for key in marks[0]}
    calls = spent["program_cpu_seconds_total"]
    own, loop = spent["session_cpu_seconds_total"] - calls, spent["loop_cpu_seconds_total"]
    device = _device_ms(bench, client, name) if bench.is_gpu else 0.0
    return Measured(found.median_ms(warm, every), own, loop, calls, device, found)


def _plan(bench: Bench, client: str) -> tuple[int, int, int]:
    every = bench.given.read_every
    warm = -(-WARM_UP[client] // every) * every
    return warm, -(-bench.given.steps // every) * every, every


def _device_ms(bench: Bench, client: str, name: str) -> float:
    """Device time per step of a client: the share of a traced stretch in which the device works, times its steps."""
    from _device_time import busy_share

    warm, steps, every = _plan(bench, client)
    with tempfile.TemporaryDirectory() as folder, bench.server(cache=bench.cache, trace=Path(folder)) as server:
        command = bench.command(client, name, "--url", server.url, steps=warm + steps, read_every=every)
        found = run(command, lambda step: server.toggle_trace() if step in (warm, warm + steps) else None)
        server.wait_for_trace(Path(folder))
        return busy_share(Path(folder)) * found.median_ms(warm, every)


def in_jax(bench: Bench, name: str) -> tuple[float, float, Steps]:
    """Milliseconds per step of the hand-written step, of the device in it (0 on a CPU), and the run."""
    warm, steps, every = _plan(bench, "plain")
    found = bench.run_jax(name, steps=warm + steps, read_every=every)
    device = 0.0
    if bench.is_gpu:
        from _device_time import busy_share

        with tempfile.TemporaryDirectory() as folder:
            options = ("--trace", folder, "--trace-from", str(warm))
            traced = bench.run_jax(name, *options, steps=warm + steps, read_every=every)
            device = busy_share(Path(folder)) * traced.median_ms(warm, every)
    return found.median_ms(warm, every), device, found


def floor_ms(bench: Bench, client: str, name: str) -> float:
    """Milliseconds per step of the client alone."""
    warm, steps, every = _plan(bench, client)
    with floor_server() as url:
        command = bench.command(client, name, "--url", url, steps=warm + steps, read_every=every)
        return run(command).median_ms(warm, every)


def in_burn(bench: Bench, name: str, way: str) -> tuple[float | str, Steps | None]:
    """Milliseconds per step on a backend of Burn's: `flex`, `ndarray`, or `remote`, Burn's own server with Flex."""
    if way not in bench.given.burn.split(","):
        return "", None
    steps, every = bench.given.read_every * 4, bench.given.read_every

    def measured(*options: str) -> tuple[float, Steps]:
        found = run(bench.command("plain", name, *options, steps=2 * steps, read_every=every))
        return found.median_ms(every, every), found

    if way != "remote":
        return measured("--device", way)
    from tests.burn.digits import stock_server

    with stock_server(bench.clients["plain"]) as url:
        return measured("--url", url)


STEP_COLUMNS = (
    "program",
    "client",
    "ours",
    "budget",
    "JAX",
    "floor",
    "Flex",
    "ndarray",
    "Burn's server",
    "own time",
    "budget of own",
    "loop",
    "in calls",
)
DEVICE_COLUMNS = ("device", "budget of device", "JAX device")


def step_rows(bench: Bench, name: str) -> list[tuple[object, ...]]:
    """One row per kind of client; of several rounds the least of each figure counts, for JAX, floor and server."""
    burn = {way: in_burn(bench, name, way) for way in ("flex", "ndarray", "remote")}
    by_jax: list[tuple[float, float, Steps]] = []
    by_floor: dict[str, list[float]] = {client: [] for client in CLIENTS}
    by_server: dict[str, list[Measured]] = {client: [] for client in CLIENTS}
    for _ in range(bench.given.rounds):
        by_jax.append(in_jax(bench, name))
        for client in CLIENTS:
            by_floor[client].append(floor_ms(bench, client, name))
            by_server[client].append(through_server(bench, client, name))
    jax_ms, jax_device, jax_steps = min(by_jax, key=lambda found: found[0])
    floors = {client: min(found) for client, found in by_floor.items()}
    rows: list[tuple[object, ...]] = []
    for client in CLIENTS:
        ours = min(by_server[client], key=lambda found: found.wall)
        check_losses(name, ours.steps, jax_steps, *(steps for _, steps in burn.values() if steps))
        jax_factor, floor_factor = (2.0, 1.3) if client == "plain" else (1.15 if bench.is_gpu else 1.3, 1.1)
        budget = max(jax_factor * jax_ms, floor_factor * floors[client])
        others = [value for value, _ in burn.values()]
        own = [ours.own, 0.3 * floors["plain"], ours.loop, ours.calls]
        device = [ours.device, 1.1 * jax_device, jax_device] if bench.is_gpu else []
        rows.append((name, client, ours.wall, budget, jax_ms, floors[client], *others, *own, *device))
    return rows


# ---- long runs


def long_rows(bench: Bench, name: str) -> list[tuple[object, ...]]:
    """1,000 steps of each kind of client: when programs are compiled, and memory."""
    from _server_rate import last_new_graph

    steps, every = 1000, bench.given.long_read_every
    rows: list[tuple[object, ...]] = []
    for client in CLIENTS:
        resident: dict[int, int] = {}
        with tempfile.TemporaryDirectory() as folder, bench.server("--capture", folder) as server:

            def at_step(step: int, server: Server = server, resident: dict[int, int] = resident) -> None:
                if step % 50 == 0 or step == 10:
                    resident[step] = server.resident_bytes()

            command = bench.command(client, name, "--url", server.url, steps=steps, read_every=every)
            found = run(command, at_step)
            compiled = [event["time"] for event in server.compiles]
            (capture,) = Path(folder).glob("*.bxs")
            reads = last_new_graph(capture)
        last = max(sum(end < time for end in found.ended_s) for time in compiled)
        allowed = 3 if client == "plain" else max(3, reads * every)
        settled = 10 if client == "plain" else -(-allowed // 50) * 50 + 50
        growth = resident[1000] / resident[settled] - 1
        rows.append((name, client, len(compiled), last, allowed, resident[settled] / 2**20, settled, growth * 100, 2))
    return rows


def first_rows(bench: Bench, name: str) -> list[tuple[object, ...]]:
    """Seconds to steps 1 and 20: JAX, then both kinds of client without and with programs on disk."""
    steps = bench.run_jax(name, steps=20, read_every=1)
    rows: list[tuple[object, ...]] = [(name, "JAX", "", steps.until_s(1), steps.until_s(20), "")]
    for client in CLIENTS:
        with tempfile.TemporaryDirectory() as folder:
            for disk in ("cold", "warm"):
                with bench.server(cache=Path(folder)) as server:
                    command = bench.command(client, name, "--url", server.url, steps=20, read_every=1)
                    steps = run(command)
                    compiled = [event["text"] for event in server.compiles]
                rows.append((name, client, disk, steps.until_s(1), steps.until_s(20), len(compiled)))
    return rows


# ---- all together


def executables(given: argparse.Namespace) -> dict[str, Path]:
    """The Rust clients, built where none are given."""
    if given.clients:
        return {client: Path(given.clients) / client for client in CLIENTS}
    from tests.burn.digits import DIGITS
    from tests.burn.oracle import build

    return {
        "plain": build(DIGITS, features=["bench"], release=True),
        "fusion": build(DIGITS, features=["bench", "fusion"], release=True),
    }


def each(bench: Bench, rows: Callable[[Bench, str], list[tuple[object, ...]]]) -> list[tuple[object, ...]]:
    """The rows of all programs; one that fails says so and does not end the others."""
    found: list[tuple[object, ...]] = []
    for name in bench.names:
        print(f"{name} ...", file=sys.stderr)
        try:
            found += rows(bench, name)
        except Failed as failure:
            print(f"{name}: {failure}", file=sys.stderr)
    return found


def main() -> None:
    """Print one table per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="rate,steps,long,first")
    parser.add_argument("--only", help="programs, with commas")
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--precision", default="highest", choices=["highest", "default"])
    parser.add_argument("--clients", help="folder of the executables `plain` and `fusion`; by default they are built")
    parser.add_argument("--burn", default="flex,ndarray,remote", help="which of Burn's own backends, with commas")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--read-every", type=int, default=10)
    parser.add_argument("--long-read-every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="of JAX, floor and server, in turn; the least counts")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    parts = given.parts.split(",")
    if "rate" in parts:
        from _server_rate import rows

        columns = ("what", "messages/s", "operations/s", "us per message", "budget, messages/s")
        found = [row for name in ("lstm", "transformer") for row in rows(ROOT / f"tests/fixtures/{name}.bxs", "cpu")]
        report("Small operations", columns, found)
    if parts == ["rate"]:
        return
    with tempfile.TemporaryDirectory() as cache:
        print_tables(Bench(given, executables(given), Path(cache)), parts)


def print_tables(bench: Bench, parts: Sequence[str]) -> None:
    """One table per part that runs programs."""
    if "steps" in parts:
        columns = (*STEP_COLUMNS, *(DEVICE_COLUMNS if bench.is_gpu else ()))
        report(f"ms per step, read every {bench.given.read_every}", columns, each(bench, step_rows))
    if "long" in parts:
        columns = ("program", "client", "programs", "last compiled in step", "budget")
        memory = ("MiB", "at step", "growth until 1,000, %", "budget of it")
        report("1,000 steps", [*columns, *memory], each(bench, long_rows))
    if "first" in parts:
        columns = ("program", "client", "disk cache", "s to step 1", "s to step 20", "programs")
        report("First steps", columns, each(bench, first_rows))


if __name__ == "__main__":
    main()
