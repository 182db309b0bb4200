"""First run of a 1,000-operation stream, cold and in a second process that finds the disk cache.

Budgets: 1.5 s cold; 20 % of that warm.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
from _bench import report


def first_run(folder: Path, num_ops: int) -> dict[str, float]:
    """Seconds from the stream recorded to its result there, in this process."""
    from _streams import AdamStep, chain, upload

    from jax_backend import disk_cache
    from jax_backend.cache import ProgramCache
    from jax_backend.recorder import Recorder

    os.environ[disk_cache.ENVIRONMENT] = str(folder)
    store = disk_cache.enable()
    recorder = Recorder(cache=ProgramCache(store=store))
    upload(recorder, 0, np.ones(16))
    upload(recorder, 1, np.ones(16))
    warm_up = Recorder()  # jax's own first-use costs are not the stream's
    upload(warm_up, 0, np.ones(3))
    warm_up.sync()
    for op in chain(num_ops, count(1000)):
        recorder.register_operation(op)
    began = time.perf_counter()
    recorder.sync()
    elementwise = time.perf_counter() - began
    training = Recorder(cache=ProgramCache(store=store))
    step = AdamStep(training, sizes=(64,) * 25 + (10,))
    step.run()
    began = time.perf_counter()
    training.sync()
    spent = time.perf_counter() - began
    return {"chain": elementwise, "adam": spent, "adam_ops": float(training.stats.operations)}


def main() -> None:
    """Print the table."""
    if "--child" in sys.argv:
        print(json.dumps(first_run(Path(sys.argv[-1]), 1000)))
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", folder]
        cold, warm = (
            json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(2)
        )
    ops = int(cold["adam_ops"])
    rows = [
        ("elementwise stream of 1,000 ops, cold", cold["chain"], 1.5),
        ("the same, second process", warm["chain"], 0.2 * cold["chain"]),
        (f"Adam step of a 25-layer network, {ops} ops, cold", cold["adam"], 1.5 * ops / 1000),
        ("the same, second process", warm["adam"], 0.2 * cold["adam"]),
    ]
    report("First run of a stream", ("what", "s", "budget"), rows)


if __name__ == "__main__":
    main()
