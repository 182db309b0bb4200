"""Loops: a body of 317 operations for 200 rounds without a read, and 1,000 Adam steps.

Budgets: at most 4 programs; compilations in the first 3 steps only, resident memory flat (2 %) after step 10.
"""

from itertools import count

import numpy as np
import psutil
from _bench import report
from _streams import AdamStep, chain, t, upload

from ir.tensor import READ_WRITE
from jax_backend.recorder import Recorder


def loop() -> tuple[int, int]:
    """Distinct programs and executions of the loop that never reads."""
    recorder = Recorder()
    upload(recorder, 0, np.ones(16))
    upload(recorder, 1, np.ones(16))
    ids, source = count(1000), 0
    for _ in range(200):
        for op in chain(317, ids, source=source):
            recorder.register_operation(op)
        recorder.drop(source)
        source = op.outputs[0].id.value
    recorder.read_tensor(t(source, (16,), READ_WRITE)).result()
    return len(recorder.cache), recorder.stats.programs


def adam(steps: int = 1000) -> tuple[list[int], list[int]]:
    """Compilations and resident bytes after each step."""
    recorder = Recorder()
    step = AdamStep(recorder)
    compiles: list[int] = []
    resident: list[int] = []
    process = psutil.Process()
    for _ in range(steps):
        step.run()
        recorder.read_tensor(t(step.loss, (64, 10))).result()
        compiles.append(recorder.cache.stats.compiles)
        resident.append(process.memory_info().rss)
    return compiles, resident


def main() -> None:
    """Print the table."""
    programs, executions = loop()
    compiles, resident = adam()
    last = next(n for n, c in enumerate(compiles, 1) if c == compiles[-1])
    growth = max(resident[10:]) / resident[10] - 1
    rows = [
        ("body of 317 ops, 200 rounds, no read: programs", programs, "<= 4"),
        ("  executions", executions, ""),
        ("1,000 Adam steps: programs compiled", compiles[-1], ""),
        ("  step of the last compilation", last, "<= 3"),
        ("  resident memory at step 10, MiB", resident[10] / 2**20, ""),
        ("  growth until step 1,000, %", growth * 100, "<= 2"),
    ]
    report("Loops", ("what", "value", "budget"), rows, programs=programs, last_compile_step=last)


if __name__ == "__main__":
    main()
