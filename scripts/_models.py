"""The training steps of `tests/burn/digits bench`, written by hand in JAX: same weights, batches and optimizers.

    python scripts/_models.py PROGRAM [--steps N] [--read-every N] [--precision highest|default] [sizes] [--trace DIR]

prints the JSON lines of the Rust program, `{"step", "ended_s", "loss"}`; the losses agree. A step is one jitted
function that updates weights and optimizer in place.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

DIGITS = Path(__file__).parent.parent / "tests/burn/digits/data/digits.bin"
NUM_TRAIN, NUM_IMAGES = 1500, 1797
NUM_BATCHES = 4
EPSILON, BETA_1, BETA_2, WEIGHT_DECAY = 1e-5, 0.9, 0.999, 1e-4
MASKED = -1e4
"""What Burn's attention puts in place of a masked score."""

Weights = dict[str, jax.Array]
Batch = tuple[np.ndarray, np.ndarray]
Shapes = dict[str, tuple[int, ...]]


class Sizes(NamedTuple):
    """As on the command line of the Rust program."""

    batch: int
    layers: int
    width: int
    length: int
    vocabulary: int


class Model(NamedTuple):
    """Shapes in the order of the Rust module's fields; `loss(weights, inputs, targets)` gives loss and new statistics.

    `batches` never ends. `optimizer` is a name.
    """

    shapes: Shapes
    loss: Callable[[Weights, jax.Array, jax.Array], tuple[jax.Array, Weights]]
    batches: Iterator[Batch]
    optimizer: str
    learning_rate: float


# ---- numbers of the host, as tests/burn/digits/src/host.rs


class Numbers:
    """SplitMix64: the upper 24 bits of each number."""

    def __init__(self, seed: int) -> None:
        self._state = np.uint64(seed)

    def take(self, count: int) -> np.ndarray:
        """The next `count` numbers, as uint64."""
        with np.errstate(over="ignore"):
            gamma = np.uint64(0x9E3779B97F4A7C15)
            bits = self._state + gamma * np.arange(1, count + 1, dtype=np.uint64)
            self._state = self._state + gamma * np.uint64(count)
            bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (bits ^ (bits >> np.uint64(31))) >> np.uint64(40)

    def uniform(self, *dims: int) -> np.ndarray:
        """Floats in [-1, 1)."""
        return (self.take(math.prod(dims)).astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(dims)

    def below(self, bound: int, *dims: int) -> np.ndarray:
        """Integers in [0, bound)."""
        return ((self.take(math.prod(dims)) * np.uint64(bound)) >> np.uint64(24)).astype(np.int32).reshape(dims)


def host_weights(shapes: Shapes, seed: int) -> Weights:
    """Matrices and kernels within 1 / sqrt(fan in), vectors within 0.1, around one where they scale."""
    numbers = Numbers(seed)
    made: Weights = {}
    for name, dims in shapes.items():
        center = 1.0 if name.endswith(("gamma", "running_var")) else 0.0
        fan_in = dims[0] if len(dims) == 2 else math.prod(dims[1:])
        radius = 0.1 if len(dims) == 1 else 1 / math.sqrt(fan_in)
        made[name] = jnp.asarray(np.float32(center) + np.float32(radius) * numbers.uniform(*dims))
    return made


def digit_batches(size: int) -> Iterator[Batch]:
    """The digits in order, (size, 8, 8) with pixels from 0 to 16."""
    data = np.frombuffer(DIGITS.read_bytes(), np.uint8)
    images = data[: NUM_IMAGES * 64].reshape(-1, 8, 8).astype(np.float32)
    labels = data[NUM_IMAGES * 64 :].astype(np.int32)
    step = 0
    while True:
        chosen = np.arange(step * size, (step + 1) * size) % NUM_TRAIN
        yield images[chosen], labels[chosen]
        step += 1


def repeated(make: Callable[[Numbers], Batch]) -> Iterator[Batch]:
    """A few batches over and over."""
    batches = [make(Numbers(1000 + n)) for n in range(NUM_BATCHES)]
    while True:
        yield from batches


def text_batch(numbers: Numbers, sizes: Sizes) -> Batch:
    """Random words, and for each place the word that follows."""
    words = numbers.below(sizes.vocabulary, sizes.batch, sizes.length + 1)
    return np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, 1:]).reshape(-1)


# ---- layers


def linear(w: Weights, name: str, x: jax.Array) -> jax.Array:
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def conv(w: Weights, name: str, x: jax.Array, groups: int = 1) -> jax.Array:
    layout = ("NCHW", "OIHW", "NCHW")
    y = jax.lax.conv_general_dilated(
        x, w[f"{name}.weight"], (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups
    )
    return y + w[f"{name}.bias"][:, None, None]


def layer_norm(w: Weights, name: str, x: jax.Array) -> jax.Array:
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + 1e-5) * w[f"{name}.gamma"] + w[f"{name}.beta"]


def batch_norm(w: Weights, name: str, x: jax.Array, running: Weights) -> jax.Array:
    """In training mode; the new statistics go to `running`."""
    mean = x.mean((0, 2, 3))
    centered = x - mean[:, None, None]
    variance = (centered * centered).mean((0, 2, 3))
    count = x.size / x.shape[1]
    for part, value in (("running_mean", mean), ("running_var", variance * (count / (count - 1)))):
        running[f"{name}.{part}"] = 0.9 * w[f"{name}.{part}"] + 0.1 * jax.lax.stop_gradient(value)
    scaled = centered * (jax.lax.rsqrt(variance + 1e-5) * w[f"{name}.gamma"])[:, None, None]
    return scaled + w[f"{name}.beta"][:, None, None]


def max_pool(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def attention(w: Weights, name: str, x: jax.Array, mask: jax.Array, heads: int) -> jax.Array:
    batch, length, width = x.shape

    def split(part: str) -> jax.Array:
        return linear(w, f"{name}.{part}", x).reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)

    scores = split("query") @ split("key").swapaxes(2, 3) / math.sqrt(width // heads)
    shares = jax.nn.softmax(jnp.where(mask, MASKED, scores), axis=-1)
    context = (shares @ split("value")).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return linear(w, f"{name}.output", context)


def encoder(w: Weights, name: str, x: jax.Array, mask: jax.Array, layers: int, heads: int) -> jax.Array:
    for n in range(layers):
        layer = f"{name}.{n}"
        x = x + attention(w, f"{layer}.mha", layer_norm(w, f"{layer}.norm_2", x), mask, heads)
        inner = linear(w, f"{layer}.pwff.linear_inner", layer_norm(w, f"{layer}.norm_1", x))
        x = x + linear(w, f"{layer}.pwff.linear_outer", jax.nn.gelu(inner, approximate=False))
    return x


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1).mean()


def linear_shapes(name: str, d_in: int, d_out: int) -> Shapes:
    return {f"{name}.weight": (d_in, d_out), f"{name}.bias": (d_out,)}


def conv_shapes(name: str, d_in: int, d_out: int) -> Shapes:
    return {f"{name}.weight": (d_out, d_in, 3, 3), f"{name}.bias": (d_out,)}


def norm_shapes(name: str, width: int, *parts: str) -> Shapes:
    return {f"{name}.{part}": (width,) for part in ("gamma", "beta", *parts)}


def encoder_shapes(name: str, layers: int, width: int, inner: int) -> Shapes:
    shapes: Shapes = {}
    for n in range(layers):
        for part in ("query", "key", "value", "output"):
            shapes |= linear_shapes(f"{name}.{n}.mha.{part}", width, width)
        shapes |= linear_shapes(f"{name}.{n}.pwff.linear_inner", width, inner)
        shapes |= linear_shapes(f"{name}.{n}.pwff.linear_outer", inner, width)
        shapes |= norm_shapes(f"{name}.{n}.norm_1", width) | norm_shapes(f"{name}.{n}.norm_2", width)
    return shapes


# ---- models


def digits_mlp(sizes: Sizes) -> Model:
    def loss(w: Weights, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Weights]:
        x = (images / 16).reshape(-1, 64)
        hidden = jax.nn.gelu(linear(w, "hidden", x), approximate=False)
        return cross_entropy(linear(w, "output", hidden), labels), {}

    return Model(
        linear_shapes("hidden", 64, 48) | linear_shapes("output", 48, 10), loss, digit_batches(64), "adam", 1e-2
    )


def digits_cnn(sizes: Sizes) -> Model:
    statistics = ("running_mean", "running_var")
    shapes = conv_shapes("conv", 1, 8) | norm_shapes("norm", 8, *statistics)
    shapes |= conv_shapes("grouped", 4, 16) | linear_shapes("output", 64, 10)

    def loss(w: Weights, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Weights]:
        running: Weights = {}
        x = conv(w, "conv", (images / 16).reshape(-1, 1, 8, 8))
        x = max_pool(jax.nn.relu(batch_norm(w, "norm", x, running)))
        x = jax.nn.leaky_relu(conv(w, "grouped", x, groups=2))
        x = x.reshape(-1, 16, 2, 2, 2, 2).mean((3, 5)).reshape(-1, 64)
        return cross_entropy(linear(w, "output", x), labels), running

    return Model(shapes, loss, digit_batches(32), "adam", 1e-2)


def digits_transformer(sizes: Sizes) -> Model:
    shapes: Shapes = {"words.weight": (17, 32), "places.weight": (64, 32)}
    shapes |= encoder_shapes("encoder", 2, 32, 64) | norm_shapes("norm", 32) | linear_shapes("output", 32, 10)

    def loss(w: Weights, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Weights]:
        words = images.reshape(-1, 64).astype(jnp.int32)
        x = w["words.weight"][words] + w["places.weight"]
        x = encoder(w, "encoder", x, (words == 0)[:, None, None, :], 2, 4)
        return cross_entropy(linear(w, "output", layer_norm(w, "norm", x).mean(1)), labels), {}

    return Model(shapes, loss, digit_batches(16), "adamw", 3e-3)


def digits_lstm(sizes: Sizes) -> Model:
    shapes: Shapes = {}
    gates = ("input", "forget", "output", "cell")
    for gate in gates:
        shapes |= linear_shapes(f"{gate}.input_transform", 8, 24) | linear_shapes(f"{gate}.hidden_transform", 24, 24)
    shapes |= linear_shapes("output", 24, 10)

    def loss(w: Weights, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Weights]:
        hidden = cell = jnp.zeros((images.shape[0], 24))
        for row in range(8):
            x = images[:, row] / 16
            i, f, o, g = (
                linear(w, f"{gate}.input_transform", x) + linear(w, f"{gate}.hidden_transform", hidden)
                for gate in gates
            )
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return cross_entropy(linear(w, "output", hidden), labels), {}

    return Model(shapes, loss, digit_batches(32), "sgd", 1.0)


def mlp(sizes: Sizes) -> Model:
    shapes = linear_shapes("first", 784, 512) | linear_shapes("second", 512, 512) | linear_shapes("output", 512, 10)

    def loss(w: Weights, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Weights]:
        x = jax.nn.relu(linear(w, "first", images))
        x = jax.nn.relu(linear(w, "second", x))
        return cross_entropy(linear(w, "output", x), labels), {}

    batches = repeated(lambda n: (n.uniform(sizes.batch, 784), n.below(10, sizes.batch)))
    return Model(shapes, loss, batches, "adam", 1e-3)


def cnn(sizes: Sizes) -> Model:
    channels = (3, 32, 64, 128)
    shapes: Shapes = {}
    for n in range(3):
        shapes |= conv_shapes(f"convs.{n}", channels[n], channels[n + 1])
    for n in range(3):
        shapes |= norm_shapes(f"norms.{n}", channels[n + 1], "running_mean", "running_var")
    shapes |= linear_shapes("output", 128 * 4 * 4, 10)

    def loss(w: Weights, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Weights]:
        running: Weights = {}
        x = images
        for n in range(3):
            x = max_pool(jax.nn.relu(batch_norm(w, f"norms.{n}", conv(w, f"convs.{n}", x), running)))
        return cross_entropy(linear(w, "output", x.reshape(x.shape[0], -1)), labels), running

    batches = repeated(lambda n: (n.uniform(sizes.batch, 3, 32, 32), n.below(10, sizes.batch)))
    return Model(shapes, loss, batches, "adam", 1e-3)


def decoder(sizes: Sizes) -> Model:
    width, heads = sizes.width, max(sizes.width // 64, 1)
    shapes: Shapes = {"words.weight": (sizes.vocabulary, width), "places.weight": (sizes.length, width)}
    shapes |= encoder_shapes("layers", sizes.layers, width, 4 * width)
    shapes |= norm_shapes("norm", width) | linear_shapes("output", width, sizes.vocabulary)

    def loss(w: Weights, words: jax.Array, targets: jax.Array) -> tuple[jax.Array, Weights]:
        x = w["words.weight"][words] + w["places.weight"]
        future = ~jnp.tril(jnp.ones((sizes.length, sizes.length), bool))
        x = layer_norm(w, "norm", encoder(w, "layers", x, future, sizes.layers, heads))
        return cross_entropy(linear(w, "output", x).reshape(-1, sizes.vocabulary), targets), {}

    return Model(shapes, loss, repeated(lambda n: text_batch(n, sizes)), "adamw", 1e-3)


MODELS: dict[str, Callable[[Sizes], Model]] = {
    "digits-mlp": digits_mlp,
    "digits-cnn": digits_cnn,
    "digits-transformer": digits_transformer,
    "digits-lstm": digits_lstm,
    "mlp": mlp,
    "cnn": cnn,
    "decoder": decoder,
}


# ---- the step


def step_of(model: Model) -> Callable[..., tuple[Any, jax.Array]]:
    """`(weights, first moments, second moments, time), inputs, targets -> (the same, renewed), loss`."""

    def step(state: Any, inputs: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
        weights, first, second, time = state
        (loss, running), grads = jax.value_and_grad(model.loss, has_aux=True)(weights, inputs, targets)
        if model.optimizer == "sgd":
            return ({n: w - model.learning_rate * grads[n] for n, w in weights.items()}, first, second, time), loss
        time = time + 1
        first = {n: BETA_1 * m + (1 - BETA_1) * grads[n] for n, m in first.items()}
        second = {n: BETA_2 * v + (1 - BETA_2) * grads[n] ** 2 for n, v in second.items()}
        root = jnp.sqrt(1 - BETA_2**time)
        rate = model.learning_rate * root / (1 - BETA_1**time)
        decay = 1 - model.learning_rate * WEIGHT_DECAY * (model.optimizer == "adamw")
        updated = {n: decay * w - rate * first[n] / (jnp.sqrt(second[n]) + EPSILON * root) for n, w in weights.items()}
        return (updated | running, first, second, time), loss

    return jax.jit(step, donate_argnums=0)


def train(model: Model, given: argparse.Namespace) -> None:
    """Train and print a line per step."""
    weights = host_weights(model.shapes, given.seed)
    has_moments = model.optimizer != "sgd"
    zeros = ({n: jnp.zeros_like(w) for n, w in weights.items()} if has_moments else {} for _ in range(2))
    state: Any = (weights, *zeros, jnp.float32(0))
    step_function = step_of(model)
    report(0, None)
    for step in range(1, given.steps + 1):
        if given.trace and step == given.trace_from:
            jax.profiler.start_trace(given.trace)
        inputs, targets = jax.device_put(next(model.batches))
        state, loss = step_function(state, inputs, targets)
        report(step, float(loss) if step % given.read_every == 0 else None)
    if given.trace:
        jax.block_until_ready(state)
        jax.profiler.stop_trace()


def report(step: int, loss: float | None) -> None:
    print(json.dumps({"step": step, "ended_s": time.time(), "loss": loss}), flush=True)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=MODELS)
    for name, value in (("steps", 20), ("read-every", 1), ("seed", 0), ("batch", 0), ("layers", 2), ("width", 512)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--precision", default="highest")
    parser.add_argument("--trace")
    parser.add_argument("--trace-from", type=int, default=10)
    given = parser.parse_args()
    batch = given.batch or {"mlp": 128, "cnn": 64}.get(given.program, 16)
    sizes = Sizes(batch, given.layers, given.width, given.length, given.vocabulary)
    with jax.default_matmul_precision(given.precision):
        train(MODELS[given.program](sizes), given)


if __name__ == "__main__":
    main()
