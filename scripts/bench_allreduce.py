"""All-reduce of one call or of several at once: ours, in a program and between recorders, beside jax's and torch's.

    python scripts/bench_allreduce.py --devices 2,4 --sizes 4K,1M,64M --parts 1,16 --torch python

Each reduces in place, one round on the result of the one before. Bus bandwidth is 2 (n - 1) / n * bytes / time, as
NCCL's tests define it, of ten rounds in a row. Without GPUs, fake CPU devices are used.
`--torch` names an interpreter that has torch: its torch.distributed (NCCL, or gloo on a CPU) reduces the same sizes,
one process per device, between our own rows.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from _bench import report
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ir
from jax_backend import host
from jax_backend.cache import ProgramCache
from jax_backend.collective import Spmd
from jax_backend.recorder import Recorder
from jax_backend.rendezvous import Rendezvous

ROW = 10
"""Rounds in a row: as in training, where nobody waits for a gradient. The bandwidth is theirs."""

UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def sizes(text: str) -> list[int]:
    """Bytes: `4K,1M` are 4,096 and 1,048,576."""
    return [int(s[:-1]) * UNITS[s[-1]] if s[-1] in UNITS else int(s) for s in text.split(",")]


def numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def everyone(num_devices: int) -> tuple[ir.DeviceId, ...]:
    return tuple(ir.DeviceId(0, n) for n in range(num_devices))


def all_reduce(source: int, out: int, length: int, num_devices: int) -> ir.AllReduce:
    tensor, made = ir.tensor(source, (length,), ir.F32, ir.READ_WRITE), ir.tensor(out, (length,), ir.F32, ir.NOT_INIT)
    return ir.AllReduce(tensor, made, ir.ReduceOperation.Sum, everyone(num_devices))


class Way(NamedTuple):
    """One way to reduce: starts a round on the result of the last one, in place; and waits for what was started."""

    start: Callable[[], None]
    wait: Callable[[], None]


def plain(devices: Sequence[jax.Device], length: int, parts: int, *, with_pmap: bool) -> Way:
    """`lax.psum` of `parts` arrays under jax's own pmap or shard_map."""
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d"))
    held = [jax.device_put(np.zeros((len(devices), length), np.float32), sharding) for _ in range(parts)]
    every = tuple(range(parts))

    def reduce(*rows: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(lax.psum(row, "d") for row in rows)

    if with_pmap:
        mapped = jax.pmap(reduce, "d", devices=devices, donate_argnums=every)
    else:
        spec = PartitionSpec("d")
        whole = jax.shard_map(reduce, mesh=sharding.mesh, in_specs=spec, out_specs=spec, check_vma=False)
        mapped = jax.jit(whole, donate_argnums=every)

    def start() -> None:
        held[:] = mapped(*held)

    return Way(start, lambda: jax.block_until_ready(held) and None)


def in_program(devices: Sequence[jax.Device], length: int, parts: int) -> Way:
    """One recorded program of `parts` operations."""
    spmd = Spmd(devices)
    held = {n: jax.device_put(np.zeros((len(devices), length), np.float32), spmd.by_device) for n in range(parts)}
    program = [all_reduce(n, parts + n, length, len(devices)) for n in range(parts)]

    def start() -> None:
        made = spmd.run(program, held)
        held.update({n: made[parts + n] for n in range(parts)})

    return Way(start, lambda: jax.block_until_ready(list(held.values())) and None)


def between_recorders(devices: Sequence[jax.Device], length: int, parts: int) -> Way:
    """`parts` operations in the stream of each of several recorders, all in this thread."""
    rendezvous, cache, ids = Rendezvous(devices), ProgramCache(), count(parts)
    recorders = [Recorder(member=rendezvous.member(n), cache=cache) for n in range(len(devices))]
    for recorder in recorders:
        for n in range(parts):
            recorder.register_tensor_data_id(n, host.from_numpy(np.zeros(length, np.float32), ir.F32))
    held = list(range(parts))

    def start() -> None:
        made = [next(ids) for _ in range(parts)]
        for recorder in recorders:
            for source, out in zip(held, made, strict=True):
                recorder.register_operation(all_reduce(source, out, length, len(devices)))
        held[:] = made

    return Way(start, lambda: jax.block_until_ready([r.handles.array(n) for r in recorders for n in held]) and None)


class Times(NamedTuple):
    """Seconds of one round that is waited for, and of each of `ROW` that follow each other."""

    alone: float
    in_a_row: float


@contextmanager
def torch_processes(python: str, world: int) -> Iterator[Callable[[int, int, int], Times]]:
    """torch.distributed in `world` processes: the times of `rounds` for (length, parts, rounds)."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Path(__file__).with_name("_torch_all_reduce.py")
        args = [python, str(worker)], [str(world), str(Path(folder, "store"))]
        processes = [
            subprocess.Popen([*args[0], str(rank), *args[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for rank in range(world)
        ]

        def ask(length: int, parts: int, rounds: int) -> Times:
            for process in processes:
                assert process.stdin
                process.stdin.write(f"{length} {parts} {rounds} {ROW}\n")
                process.stdin.flush()
            assert processes[0].stdout
            return Times(*map(float, processes[0].stdout.readline().split()))

        try:
            yield ask
        finally:
            for process in processes:  # each waits for the others at its end
                assert process.stdin
                process.stdin.close()
            for process in processes:
                process.wait(timeout=60)


def measured(way: Way, rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        way.start()
    way.wait()
    return (time.perf_counter() - began) / rounds


def interleaved(ways: dict[str, Way], budget_s: float) -> dict[str, Times]:
    """The medians of rounds in turn, so that a drift of the machine meets all."""
    for way in ways.values():
        measured(way, 2)
    times: dict[str, list[Times]] = {name: [] for name in ways}
    deadline = time.perf_counter() + budget_s
    while time.perf_counter() < deadline or len(times[next(iter(times))]) < 5:
        for name, way in ways.items():
            times[name].append(Times(measured(way, 1), measured(way, ROW)))
    return {name: Times(*map(statistics.median, zip(*values, strict=True))) for name, values in times.items()}


def table(
    devices: Sequence[jax.Device], given: argparse.Namespace, torch: Callable[[int, int, int], Times] | None
) -> list[tuple[object, ...]]:
    """The rows of one number of devices; each is said on standard error as soon as it is known."""
    rows: list[tuple[object, ...]] = []
    number = len(devices)
    for size in given.sizes:
        for parts in given.parts:
            length = max(1, size // 4 // parts)
            ways = {
                "pmap": plain(devices, length, parts, with_pmap=True),
                "shard_map": plain(devices, length, parts, with_pmap=False),
                "ours, in a program": in_program(devices, length, parts),
                "ours, between recorders": between_recorders(devices, length, parts),
            }
            times = interleaved(ways, given.seconds)
            if torch:
                rounds = int(min(1000, max(5, given.seconds / 4 / ROW / times["pmap"].in_a_row)))
                times["torch.distributed"] = torch(length, parts, rounds)
            for how, (alone, in_a_row) in times.items():
                moved = 2 * (number - 1) / number * 4 * length * parts
                rows.append((how, number, size, parts, alone * 1e6, in_a_row * 1e6, moved / in_a_row / 1e9))
                print(*rows[-1], sep="\t", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=numbers, default=[2, 4], help="how many, comma-separated")
    parser.add_argument("--sizes", type=sizes, default=sizes("4K,64K,1M,16M"), help="bytes per device and call")
    parser.add_argument("--parts", type=numbers, default=[1], help="tensors that share those bytes")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row of the table's four columns")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch, for its column")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if os.environ.get("JAX_PLATFORMS") == "cpu" or not os.path.exists("/dev/nvidia0"):
        jax.config.update("jax_num_cpu_devices", max(given.devices))
    rows: list[tuple[object, ...]] = []
    for number in given.devices:
        devices = jax.devices()[:number]
        if len(devices) < number:
            parser.error(f"expected {number} devices, got {len(devices)}")
        if given.torch:
            with torch_processes(given.torch, number) as ask:
                rows += table(devices, given, ask)
        else:
            rows += table(devices, given, None)
    columns = ("how", "devices", "bytes", "parts", "us alone", "us in a row", "bus GB/s")
    report(f"All-reduce of f32 on {jax.devices()[0].device_kind}", columns, rows)


if __name__ == "__main__":
    main()
