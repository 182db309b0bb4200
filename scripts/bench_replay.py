"""Replay of a known graph of 100 operations, 20 inputs and 20 outputs, beside the bare jitted call. Budget: 2x."""

from itertools import count

import jax
import numpy as np
from _bench import paired, report
from _streams import t, upload

import ir
from jax_backend.recorder import Recorder

WIDTH, DEPTH, DIMS = 20, 5, (32, 32)


def main() -> None:
    """Print the table."""
    recorder = Recorder()
    relative, names = [], iter(count(WIDTH))
    outs: list[int] = []
    for n in range(WIDTH):
        current = n
        for _ in range(DEPTH):
            made = next(names)
            relative.append(ir.Add(t(current, (0, 0)), t((n + 1) % WIDTH, (0, 0)), t(made, (0, 0), ir.NOT_INIT)))
            current = made
        outs.append(current)
    recorder.register_graph(1, relative)
    ids = count(10_000)
    arrays = [np.random.default_rng(n).normal(size=DIMS).astype(np.float32) for n in range(WIDTH)]
    for n, array in enumerate(arrays):
        upload(recorder, n, array)

    def replay() -> None:
        made = [next(ids) for _ in outs]
        pairs = [*((n, n) for n in range(WIDTH)), *zip(outs, made, strict=True)]
        bound = tuple((ir.TensorId(a), ir.TensorId(b)) for a, b in pairs)
        recorder.execute_graph(1, ir.GraphBindings(bound, (DIMS[0],), (), ()))
        recorder.flush()
        results = [recorder.handles.array(i) for i in made]
        jax.block_until_ready(results)
        for i in made:
            recorder.drop(i)

    def program(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        results = []
        for n in range(WIDTH):
            current = inputs[n]
            for _ in range(DEPTH):
                current = current + inputs[(n + 1) % WIDTH]
            results.append(current)
        return tuple(results)

    bare = jax.jit(program)
    given = [jax.device_put(a) for a in arrays]

    def call() -> None:
        jax.block_until_ready(bare(*given))

    replay(), call()
    ours, jitted = paired(replay, call, number=100)
    report(
        "Replay of a known graph: 100 ops, 20 inputs, 20 outputs",
        ("what", "us per call", "ratio", "budget"),
        [("bare jitted call", jitted * 1e6, 1.0, ""), ("execute_graph to results", ours * 1e6, ours / jitted, 2.0)],
        compiles=recorder.cache.stats.compiles,
    )


if __name__ == "__main__":
    main()
