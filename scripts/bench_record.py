"""Record + key + cache hit per operation, beside torch_xla's lazy trace (where installed) and plain eager JAX.

Budgets (in process): 2 us per operation and a quarter of torch_xla's trace; decode + record 4 us; 10,000 operations
take ten times what 1,000 take; a known graph call 10 us + 0.15 us per binding entry. `--torch-python PATH` names an
interpreter that has torch_xla.
"""

import subprocess
import sys
from itertools import count
from time import thread_time

import jax
import jax.numpy as jnp
import numpy as np
from _bench import best, report
from _streams import chain, t, upload

import ir
from ir.op import Op
from ir.wire.codec import decode_operation, encode_operation
from jax_backend.executable import Executable
from jax_backend.recorder import Recorder

TORCH = """
import time, torch, torch_xla
device = torch_xla.device()
x, w = torch.ones(16, device=device), torch.ones(16, device=device)
def trace(n):
    y = x
    for i in range(n):
        y = y + w if i % 3 else y * w
    return y
traced, known = [], []
for _ in range(12):
    began = time.thread_time(); y = trace(1000); traced.append(time.thread_time() - began)
    torch_xla.sync(); known.append(time.thread_time() - began)
    torch_xla.sync(wait=True)
print(min(traced) * 1e3, min(known) * 1e3)
"""


def replayer(num_ops: int) -> tuple[Recorder, list[list[Op]]]:
    """A recorder that knows the stream of `num_ops` operations, and further runs of it on fresh ids."""
    recorder = Recorder()
    ids = count(1000)
    upload(recorder, 0, np.ones(16))
    upload(recorder, 1, np.ones(16))
    runs = [chain(num_ops, ids) for _ in range(12)]
    for ops in runs[:3]:
        record(recorder, ops)
    return recorder, runs[3:]


def record(recorder: Recorder, ops: list[Op]) -> None:
    for op in ops:
        recorder.register_operation(op)
    recorder.flush()


def without_device(recorder: Recorder) -> None:
    """Answer every call with arrays at hand, so that the time is recording, key and look-up alone."""
    result = jnp.ones(16)

    def answer(self: Executable, inputs: object, pack: object) -> list[jax.Array]:
        return [result] * len(self.graph.outputs)

    Executable.__call__ = answer  # type: ignore[method-assign]


def graph_call(entries: int) -> float:
    """Seconds of one call of a known graph with `entries` bound tensors, without its execution."""
    recorder = Recorder()
    upload(recorder, 0, np.ones(16))
    relative = [ir.MulScalar(t(0, (0,)), ir.ScalarIr(UInt=n), t(1 + n, (0,), ir.NOT_INIT)) for n in range(entries - 1)]
    recorder.register_graph(1, relative)
    pairs = tuple((ir.TensorId(n), ir.TensorId(n + 100 if n else 0)) for n in range(entries))
    scalars = tuple(ir.scalar(1.0) for _ in range(entries - 1))
    bindings = ir.GraphBindings(pairs, (16,), scalars, ())
    recorder.execute_graph(1, bindings)

    def call() -> None:
        recorder.execute_graph(1, bindings)
        recorder._clear_pending()

    return best(call, number=50, clock=thread_time)


def main() -> None:
    """Print the table."""
    rows: list[tuple[object, ...]] = []
    per_op: dict[int, float] = {}
    for num_ops in (1_000, 2_000):
        recorder, runs = replayer(num_ops)
        kept = Executable.__call__
        without_device(recorder)
        times = [best(lambda r=recorder, o=ops: record(r, o), repeats=1, clock=thread_time) for ops in runs]
        Executable.__call__ = kept  # type: ignore[method-assign]
        per_op[num_ops] = min(times) / num_ops * 1e6
        rows.append((f"record + key + hit, {num_ops} ops", per_op[num_ops], 2.0))
    recorder, runs = replayer(1_000)
    frames = [[encode_operation(ir.operation(op)) for op in ops] for ops in runs]
    without_device(recorder)

    def decoded(frame: list[bytes]) -> None:
        for data in frame:
            recorder.register_operation(decode_operation(data))
        recorder.flush()

    rows.append(
        (
            "msgpack decode + record",
            min(best(lambda f=f: decoded(f), repeats=1, clock=thread_time) for f in frames) * 1e3,
            4.0,
        )
    )
    ten, hundred = graph_call(10), graph_call(100)
    rows.append(("graph call, 100 binding entries", hundred * 1e6, 10 + 0.15 * 100))
    rows.append(("graph call, 10 binding entries", ten * 1e6, 10 + 0.15 * 10))
    x, w = jnp.ones(16), jnp.ones(16)
    eager = best(lambda: [x + w for _ in range(1000)], clock=thread_time) * 1e3
    rows.append(("eager jax, dispatch of one op", eager, ""))
    if "--torch-python" in sys.argv:
        python = sys.argv[sys.argv.index("--torch-python") + 1]
        traced = subprocess.run([python, "-c", TORCH], capture_output=True, text=True, check=True).stdout
        trace, known = map(float, traced.split()[-2:])
        rows.append(("torch_xla lazy trace", trace, ""))
        rows.append(("torch_xla lazy trace + graph hash + hit", known, ""))
    report("Recording, us per operation or call", ("what", "us", "budget"), rows)


if __name__ == "__main__":
    main()
