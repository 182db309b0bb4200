"""Runs a segment operation by operation, uncompiled: slow, for finding faults; the same results as compiled."""

import jax
import jax.numpy as jnp

from ir.stream import Segment, build_graph
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.executable import Packer
from jax_backend.interpreter import run_graph
from jax_backend.rng import RandomState
from jax_backend.types import Device


def run_eagerly(
    part: Segment,
    inputs: dict[int, jax.Array],
    random: RandomState,
    device: Device,
    custom_ops: CustomOpRegistry,
) -> dict[int, jax.Array]:
    """Run `part` on `inputs`, by id, and return everything it produces, by id.

    Raises:
        OperationError: an operation failed; it names the operation and its place.
    """
    ids = part.bindings.ids
    graph = build_graph(*part.key, sorted(part.numbers[i] for i in part.produced))
    packer = Packer(graph.scalars, len(graph.starts), graph.num_random > 0)
    key = random.take(graph.num_random) if graph.num_random else ()
    with jax.enable_x64(True), jax.default_device(device):
        words = jnp.asarray(packer.pack(part.bindings.scalars, part.bindings.starts, key))
        scalars, _, state = packer.unpack(words)
        arrays = [inputs[ids[value]] for value in graph.inputs]
        results = run_graph(graph, arrays, scalars, part.bindings.starts, state, custom_ops)
    return {ids[value]: array for value, array in zip(graph.outputs, results, strict=True)}
