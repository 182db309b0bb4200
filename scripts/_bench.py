"""What every benchmark shares: a quiet way to time, the machine's line, one table or one JSON object."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any


def machine() -> dict[str, str]:
    """Processor, cores, Python and the versions that matter."""
    model = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    return {
        "processor": model or platform.machine(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "jaxlib", "msgspec", "numpy")},
    }


def _cpuinfo() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []


def best(
    function: Callable[[], Any], *, repeats: int = 7, number: int = 1, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one call: the least of `repeats` measurements of `number` calls each.

    `time.thread_time` as the clock leaves out what other processes took of the core, for work that never waits.
    """
    times: list[float] = []
    for _ in range(repeats):
        began = clock()
        for _ in range(number):
            function()
        times.append((clock() - began) / number)
    return min(times)


def paired(
    first: Callable[[], Any], second: Callable[[], Any], *, repeats: int = 9, number: int = 1
) -> tuple[float, float]:
    """Seconds of one call of each, measured in turn so that a drift of the machine meets both; medians."""
    firsts: list[float] = []
    seconds: list[float] = []
    for _ in range(repeats):
        firsts.append(best(first, repeats=1, number=number))
        seconds.append(best(second, repeats=1, number=number))
    return statistics.median(firsts), statistics.median(seconds)


def report(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], **facts: Any) -> None:
    """Print one table, or with `--json` one object `{"title", "machine", "rows", ...facts}`."""
    if "--json" in sys.argv:
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        print(json.dumps({"title": title, "machine": machine(), "rows": named, **facts}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, caption=", ".join(f"{k} {v}" for k, v in machine().items()))
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {_cell(value)}")


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
