"""Single operations on the device, each beside the call that one would write in JAX by hand; both compiled.

`--device cpu|gpu|tpu` chooses where (default: what JAX takes), `--dtype f32|bf16` the operands, `--only TEXT` the rows.
The ratio is ours by theirs: below 1 this project is faster. Products run at full float32 precision on both sides. On a
GPU the times are those in which it works, by jax's profiler, and stand beside what one call takes as seen from Python:
under 100 us that is mostly the launch, and varies by a fifth.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _bench import paired, report
from _device_time import traced
from jax import lax

import ir
from ir.build import build
from ir.op import Op
from ir.stream import relativise
from jax_backend import ops as _lowerings  # noqa: F401 (registers them)
from jax_backend.custom_ops import CustomOpRegistry
from jax_backend.interpreter import run_graph

COLUMNS = ("operation", "us", "us by hand", "ratio", "call, us", "by hand")
HIGHEST = lax.Precision.HIGHEST
IMAGE, PLANE, SEQUENCE = (16, 64, 56, 56), (256, 4096), (4, 8, 256, 64)


class Row(NamedTuple):
    """A stream of operations on inputs with the ids 0.., and the same by hand."""

    name: str
    ops: Sequence[Op]
    inputs: Sequence[jax.Array]
    by_hand: Callable[..., Any]


class Maker:
    """Makes inputs and operations on them, with fresh ids."""

    def __init__(self, dtype: ir.DType) -> None:
        self.dtype = dtype
        self.numbers = np.random.default_rng(0)
        self.inputs: list[jax.Array] = []
        self.ops: list[Op] = []
        self._ids = count(100)

    def normal(self, *shape: int) -> ir.TensorIr:
        """An input of normal numbers."""
        array = jnp.asarray(self.numbers.normal(size=shape), jnp.float32).astype(
            jnp.bfloat16 if self.dtype is ir.BF16 else jnp.float32
        )
        return self._add(array, self.dtype)

    def indices(self, bound: int, *shape: int) -> ir.TensorIr:
        """An input of numbers below `bound`."""
        return self._add(jnp.asarray(self.numbers.integers(0, bound, shape), jnp.int32), ir.I32)

    def _add(self, array: jax.Array, dtype: ir.DType) -> ir.TensorIr:
        self.inputs.append(array)
        return ir.tensor(len(self.inputs) - 1, array.shape, dtype)

    def op(self, kind: type[Op], *inputs: ir.TensorIr | None, **static: object) -> tuple[ir.TensorIr, ...]:
        """Record an operation; its outputs, ready to be read."""
        made = build(kind, inputs, lambda: next(self._ids), static)
        self.ops.append(made)
        return tuple(ir.tensor(x.id.value, x.shape.dims, x.dtype) for x in made.outputs)

    def row(self, name: str, by_hand: Callable[..., Any]) -> Row:
        """What was recorded, beside a function of all inputs in order."""
        return Row(name, self.ops, self.inputs, by_hand)


def conv(x: jax.Array, weight: jax.Array, *, stride: int = 1, padding: int = 1, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x, weight, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups, precision=HIGHEST
    )


def conv_rows(dtype: ir.DType) -> list[Row]:
    rows: list[Row] = []
    channels = IMAGE[1]
    shapes = {"": (1, 1), ", stride 2": (2, 1), ", 8 groups": (1, 8), ", depthwise": (1, channels)}
    for what, (stride, groups) in shapes.items():
        forward = partial(conv, stride=stride, groups=groups)
        size = IMAGE[2] // stride
        static = {"stride": stride, "padding": 1, "groups": groups}

        def setup(dtype: ir.DType = dtype, groups: int = groups, size: int = size) -> tuple[Maker, ir.TensorIr, ...]:
            m = Maker(dtype)
            tensors = m.normal(*IMAGE), m.normal(channels, channels // groups, 3, 3)
            return m, *tensors, m.normal(IMAGE[0], channels, size, size)

        m, x, weight, _ = setup()
        m.op(ir.Conv2d, x, weight, None, **static)
        rows.append(m.row(f"conv2d 3x3{what}", lambda x, w, g, f=forward: f(x, w)))
        m, x, weight, grad = setup()
        m.op(ir.Conv2dXBackward, x, weight, grad, **static)
        rows.append(m.row("  by x", lambda x, w, g, f=forward: jax.vjp(lambda x: f(x, w), x)[1](g)))
        m, x, weight, grad = setup()
        m.op(ir.Conv2dWeightBackward, x, weight, grad, **static)
        rows.append(m.row("  by weight", lambda x, w, g, f=forward: jax.vjp(lambda w: f(x, w), w)[1](g)))
    return rows


def pooled(x: jax.Array, start: float, reducer: Callable[[Any, Any], Any]) -> jax.Array:
    return lax.reduce_window(
        x, np.asarray(start, x.dtype), reducer, (1, 1, 3, 3), (1, 1, 2, 2), [(0, 0), (0, 0), (1, 1), (1, 1)]
    )


def pool_rows(dtype: ir.DType) -> list[Row]:
    window = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    maximum = partial(pooled, start=-np.inf, reducer=lax.max)
    half = (*IMAGE[:2], IMAGE[2] // 2, IMAGE[3] // 2)

    def mean(x: jax.Array) -> jax.Array:
        return (pooled(x.astype(jnp.float32), 0.0, lax.add) / 9.0).astype(x.dtype)

    rows: list[Row] = []
    m = Maker(dtype)
    m.op(ir.MaxPool2d, m.normal(*IMAGE), dilation=(1, 1), ceil_mode=False, **window)
    rows.append(m.row("max pool 3x3, stride 2", maximum))
    m = Maker(dtype)
    x, grad = m.normal(*IMAGE), m.normal(*half)
    _, places = m.op(ir.MaxPool2dWithIndices, x, dilation=(1, 1), ceil_mode=False, **window)
    m.op(ir.MaxPool2dWithIndicesBackward, x, grad, places, dilation=(1, 1), ceil_mode=False, **window)
    rows.append(m.row("  with indices, and by x", lambda x, g: (maximum(x), jax.vjp(maximum, x)[1](g))))
    m = Maker(dtype)
    m.op(ir.AvgPool2d, m.normal(*IMAGE), count_include_pad=True, ceil_mode=False, **window)
    rows.append(m.row("mean pool 3x3, stride 2", mean))
    m = Maker(dtype)
    x, grad = m.normal(*IMAGE), m.normal(*half)
    m.op(ir.AvgPool2dBackward, x, grad, count_include_pad=True, ceil_mode=False, **window)
    rows.append(m.row("  by x", lambda x, g: jax.vjp(mean, x)[1](g)))
    return rows


def other_rows(dtype: ir.DType) -> list[Row]:
    rows: list[Row] = []
    m = Maker(dtype)
    m.op(ir.Gather, m.normal(*PLANE), m.indices(PLANE[1], *PLANE), dim=1)
    rows.append(m.row("gather", lambda x, i: jnp.take_along_axis(x, i, axis=1)))
    m = Maker(dtype)
    x, places, value = m.normal(*PLANE), m.indices(PLANE[1], *PLANE), m.normal(*PLANE)
    m.op(ir.Scatter, x, places, value, dim=1, update="Add")
    rows.append(m.row("scatter add", lambda x, i, v: x.at[jnp.arange(PLANE[0])[:, None], i].add(v)))
    m = Maker(dtype)
    m.op(ir.Sort, m.normal(*PLANE), dim=1, descending=False)
    rows.append(m.row("sort", lambda x: jnp.sort(x, axis=1)))
    m = Maker(dtype)
    query, key, value = (m.normal(*SEQUENCE) for _ in range(3))
    m.op(ir.Attention, query, key, value, None, None, scale=None, softcap=None, is_causal=False)
    rows.append(m.row("attention", attention))
    return rows


def attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    product = partial(jnp.einsum, precision=HIGHEST, preferred_element_type=jnp.float32)
    scores = product("bhqd,bhkd->bhqk", query, key) * query.shape[-1] ** -0.5
    return product("bhqk,bhkd->bhqd", jax.nn.softmax(scores), value.astype(jnp.float32)).astype(query.dtype)


def busy_us(call: Callable[[], Any], number: int) -> float:
    """Microseconds in which the GPU works on one of the `number` rounds of a call."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
        return traced(Path(folder)).busy / number / 1e3


def measure(row: Row, number: int) -> list[str | float]:
    """Name, microseconds here, microseconds by hand, ratio; on a GPU of the device's own time, and of calls."""
    graph, bindings = relativise(row.ops)
    operands = [row.inputs[bindings.ids[n]] for n in graph.inputs]
    ours = jax.jit(lambda *a: run_graph(graph, a, (), bindings.starts, None, CustomOpRegistry()))
    ours = ours.lower(*operands).compile()
    hand = jax.jit(row.by_hand).lower(*row.inputs).compile()

    def timed(function: Callable[..., Any], arguments: Sequence[jax.Array]) -> Callable[[], Any]:
        def call() -> None:
            for _ in range(number - 1):
                function(*arguments)
            jax.block_until_ready(function(*arguments))

        return call

    calls = timed(ours, operands), timed(hand, row.inputs)
    here, there = (seconds / number * 1e6 for seconds in paired(*calls))
    if jax.devices()[0].platform == "cpu":
        return [row.name, here, there, here / there]
    busy, busy_by_hand = (busy_us(call, number) for call in calls)
    return [row.name, busy, busy_by_hand, busy / busy_by_hand, here, there]


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def main() -> None:
    """Print the table."""
    if (platform := option("--device", "")) != "":
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(platform, platform))
    dtype = {"f32": ir.F32, "bf16": ir.BF16}[option("--dtype", "f32")]
    device = jax.devices()[0]
    number = 1 if device.platform == "cpu" else 20
    with jax.enable_x64(True):
        made = conv_rows(dtype) + pool_rows(dtype) + other_rows(dtype)
        rows = [measure(row, number) for row in made if option("--only", "") in row.name]
    report(
        f"Operations in {dtype.short}, beside JAX by hand",
        COLUMNS[: len(rows[0])],
        rows,
        device=device.device_kind,
        shapes=f"images {IMAGE}, planes {PLANE}, attention {SEQUENCE}",
    )


if __name__ == "__main__":
    main()
