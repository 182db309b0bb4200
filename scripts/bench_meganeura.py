"""Meganeura's models as sessions, beside the same in plain JAX: time of a run, and seconds until the first can start.

    python scripts/bench_meganeura.py                       # all rows
    python scripts/bench_meganeura.py --rows prefill,decode --small
    python scripts/bench_meganeura.py --precision tf32      # products as XLA chooses, not in full f32

Both sides run on the same random weights, in one process and in turn; `off by` is the largest difference of their
results, over the largest result. Whichever side comes first in a process starts the device's libraries for both, and on
a GPU has been seen to run slower for as long as the process lives. So compiling is measured for the side that comes
first, `cold` with nothing on disk, `warm` with what an earlier process left there; and the time of a run is the better
of two processes, one with either side first. Rows are printed as they finish, all of them once more at the end; one
that fails leaves the others alone.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _bench import paired, report
from _processes import ENVIRONMENT

COLUMNS = ("what", "ours ms", "JAX ms", "ratio", "per s", "off by", "cold s", "JAX cold s", "warm s", "JAX warm s")


@dataclass(frozen=True)
class Case:
    """A row: sides to prepare, and how to run each."""

    what: str
    units: int
    """Tokens, images or spectrograms per run, for the column `per s`."""
    prepare: Callable[[], Any]
    """Builds and compiles our side; what it returns goes into the others."""
    prepare_by_hand: Callable[[], Any]
    run: Callable[[Any], Any]
    """Runs once and waits; returns something to compare."""
    run_by_hand: Callable[[Any], Any]


class Setup:
    """Sizes, precision and device of one process."""

    def __init__(self, small: bool, precision: str) -> None:
        import jax

        from jax_backend import disk_cache
        from jax_backend.models import decoder, resnet, whisper

        self.small = small
        self.precision = {"f32": jax.lax.Precision.HIGHEST, "tf32": jax.lax.Precision.DEFAULT}[precision]
        jax.config.update("jax_default_matmul_precision", {"f32": "highest", "tf32": "default"}[precision])
        self.options: dict[str, Any] = {"precision": self.precision, "store": disk_cache.enable()}
        self.seq, self.new, self.batch, self.mel = (16, 8, 2, 300) if small else (128, 128, 4, 3000)
        self.images = 1 if small else 4
        self.decoder, self.resnet = decoder.SMOLLM2_135M, resnet.RESNET50
        self.whisper = replace(whisper.WHISPER_TINY, activation_function="gelu_tanh")
        if small:
            self.decoder = replace(self.decoder, num_hidden_layers=3, vocab_size=512)
            self.resnet = replace(self.resnet, blocks=(1, 1, 1, 1), image_size=64, num_classes=10)
            self.whisper = replace(self.whisper, encoder_layers=1)


def values(model: Any) -> dict[str, Any]:
    """Random parameters of a graph, on the device."""
    import jax

    from ir.meganeura.ops import Parameter

    rng, made = np.random.default_rng(0), {}
    for op in model.graph.ops():
        if isinstance(op, Parameter) and op.name in model.loads:
            shape = op.out.shape.dims
            numbers = rng.standard_normal(shape, np.float32) * np.float32(0.02)
            made[op.name] = jax.device_put(numbers + np.float32("norm" in op.name and op.name.endswith("weight")))
    return made


def session_of(model: Any, parameters: dict[str, Any], **options: Any) -> Any:
    from jax_backend.meganeura import Session

    session = Session(model.graph, **options)
    for name, array in parameters.items():
        session.set_parameter(name, array)
    return session


def compiled(function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = ()) -> Any:
    """Plain JAX, compiled ahead of time for these arguments."""
    import jax

    return jax.jit(function, donate_argnums=donate).lower(*arguments).compile()


def inference(
    setup: Setup, what: str, units: int, build: Callable[[], Any], inputs: dict[str, Any], by_hand: Any
) -> Case:
    """A row that runs forward; `by_hand` takes parameters, then the inputs in order."""
    import jax

    parameters = values(build())
    data = [jax.device_put(array) for array in inputs.values()]

    def prepare() -> Any:
        session = session_of(build(), parameters, **setup.options)
        for name, array in zip(inputs, data, strict=True):
            session.set_input(name, np.asarray(array))
        session.programs.prepare()
        return session

    def run(session: Any) -> Any:
        session.step()
        return jax.block_until_ready(session.output())

    def run_by_hand(made: Any) -> Any:
        return jax.block_until_ready(made(parameters, *data))

    return Case(what, units, prepare, partial(compiled, by_hand, parameters, *data), run, run_by_hand)


def training(
    setup: Setup,
    what: str,
    units: int,
    build: Callable[[], Any],
    inputs: dict[str, Any],
    by_hand: Any,
    batch: int | None,
) -> Case:
    """A row that does a step of Adam; by hand with optax, as one would."""
    import jax
    import optax

    parameters = values(build())
    data = [jax.device_put(array) for array in inputs.values()]
    rule = optax.adam(1e-3)

    def prepare() -> Any:
        session = session_of(build(), parameters, gradients="jax", batch=batch, **setup.options)
        for name, array in zip(inputs, data, strict=True):
            session.set_input(name, array.reshape(session.inputs[name]))
        session.set_adam(1e-3)
        session.programs.prepare("adam")
        return session

    def run(session: Any) -> Any:
        session.step()
        session.wait()
        return session.output(0)

    def step(p: Any, state: Any, *arguments: Any) -> Any:
        loss, grads = jax.value_and_grad(by_hand)(p, *arguments)
        changes, state = rule.update(grads, state)
        return loss, optax.apply_updates(p, changes), state

    def prepare_by_hand() -> Any:
        own = jax.tree.map(lambda array: array.copy(), parameters)
        state = rule.init(own)
        return [compiled(step, own, state, *data, donate=(0, 1)), own, state]

    def run_by_hand(made: Any) -> Any:
        loss, made[1], made[2] = jax.block_until_ready(made[0](made[1], made[2], *data))
        return loss

    return Case(what, units, prepare, prepare_by_hand, run, run_by_hand)


def prefill(setup: Setup) -> Case:
    import _meganeura_by_hand as plain

    from jax_backend.models import decoder

    config, tokens = setup.decoder, np.arange(setup.seq, dtype=np.uint32)

    def by_hand(parameters: Any, tokens: Any) -> Any:
        return plain.decoder(parameters, config, tokens)[0]

    what, build = f"SmolLM2-135M, prefill of {setup.seq}", partial(decoder.build_graph, config, setup.seq)
    return inference(setup, what, setup.seq, build, {"token_ids": tokens}, by_hand)


def decode(setup: Setup) -> Case:
    """`new` tokens one by one from the start; the token is chosen on the device, and nobody waits in between."""
    import _meganeura_by_hand as plain
    import jax
    import jax.numpy as jnp

    from jax_backend.models import decoder
    from jax_backend.models.generation import GREEDY, decoded

    config, count = setup.decoder, setup.new
    build = partial(decoder.build_decode_graph, config, setup.seq + count)
    parameters = values(build())
    shape = (setup.seq + count, config.num_key_value_heads, config.head_dim)

    def prepare() -> Any:
        session = session_of(build(), parameters, feedback=GREEDY, **setup.options)
        session.programs.prepare()
        return session

    def run(session: Any) -> Any:
        session.set_input("token_ids", [1])
        session.set_input("kv_pos", [0])
        return np.asarray(jnp.concatenate(decoded(session, count)))

    def prepare_by_hand() -> Any:
        caches = [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(config.num_hidden_layers)]
        one = jnp.ones((1,), jnp.uint32)

        def step(parameters: Any, caches: Any, token: Any, position: Any) -> Any:
            return plain.decode(parameters, config, caches, token, position)

        return [compiled(step, parameters, caches, one, one, donate=(1,)), caches]

    def run_by_hand(state: Any) -> Any:
        token = jnp.ones((1,), jnp.uint32)
        made = []
        for position in range(count):
            token, state[1] = state[0](parameters, state[1], token, np.asarray([position], np.uint32))
            made.append(token)
        return np.asarray(jax.block_until_ready(jnp.concatenate(made)))

    return Case(f"SmolLM2-135M, {count} tokens one by one", count, prepare, prepare_by_hand, run, run_by_hand)


def train(setup: Setup) -> Case:
    import _meganeura_by_hand as plain

    from jax_backend.models import decoder

    config, shape = setup.decoder, (setup.batch, setup.seq)
    tokens = np.arange(setup.batch * setup.seq, dtype=np.uint32).reshape(shape) % config.vocab_size
    labels = np.eye(config.vocab_size, dtype=np.float32)[np.roll(tokens, -1, 1)]

    def loss(parameters: Any, tokens: Any, labels: Any) -> Any:
        return plain.decoder_loss(parameters, config, tokens, labels)

    what = f"SmolLM2-135M, training step of {setup.batch} x {setup.seq}"
    build, inputs = partial(decoder.build_training_graph, config, setup.seq), {"token_ids": tokens, "labels": labels}
    return training(setup, what, tokens.size, build, inputs, loss, setup.batch)


def resnet(setup: Setup) -> Case:
    import _meganeura_by_hand as plain

    from jax_backend.models import resnet as models

    image = images(setup)

    def by_hand(parameters: Any, flat: Any) -> Any:
        return plain.resnet(parameters, setup.resnet, flat.reshape(image.shape))

    build = partial(models.build_graph, setup.resnet, setup.images)
    return inference(setup, f"ResNet-50, {setup.images} images", setup.images, build, {"image": image.ravel()}, by_hand)


def resnet_train(setup: Setup) -> Case:
    import _meganeura_by_hand as plain

    from jax_backend.models import resnet as models

    image = images(setup)
    labels = np.eye(setup.resnet.num_classes, dtype=np.float32)[np.arange(setup.images)]

    def loss(parameters: Any, flat: Any, labels: Any) -> Any:
        return plain.resnet_loss(parameters, setup.resnet, flat.reshape(image.shape), labels)

    what, inputs = f"ResNet-50, training step of {setup.images} images", {"image": image.ravel(), "labels": labels}
    build = partial(models.build_training_graph, setup.resnet, setup.images)
    return training(setup, what, setup.images, build, inputs, loss, None)


def images(setup: Setup) -> np.ndarray:
    """As in Meganeura's benchmark."""
    size = setup.resnet.image_size
    return np.sin(0.001 * np.arange(setup.images * 3 * size * size)).astype(np.float32).reshape(-1, 3, size, size)


def whisper(setup: Setup) -> Case:
    import _meganeura_by_hand as plain

    from jax_backend.models import whisper as models

    mel = np.sin(0.001 * np.arange(80 * setup.mel)).astype(np.float32)

    def by_hand(parameters: Any, flat: Any) -> Any:
        return plain.whisper_encoder(parameters, setup.whisper, flat.reshape(80, setup.mel))

    build = partial(models.build_encoder, setup.whisper, setup.mel)
    return inference(setup, f"Whisper tiny, encoder of {setup.mel} frames", 1, build, {"mel": mel}, by_hand)


ROWS: dict[str, Callable[[Setup], Case]] = {
    "prefill": prefill,
    "decode": decode,
    "train": train,
    "resnet": resnet,
    "resnet_train": resnet_train,
    "whisper": whisper,
}


def measured(row: str, setup: Setup, sides: list[str], repeats: int) -> dict[str, Any]:
    """Seconds of compiling the first of `sides`; of two also milliseconds of running them, in this process."""
    case = ROWS[row](setup)
    ways = {"ours": case.prepare, "plain": case.prepare_by_hand}
    began = time.perf_counter()
    made = {sides[0]: ways[sides[0]]()}
    found: dict[str, Any] = {"compile": time.perf_counter() - began}
    if len(sides) > 1:
        made[sides[1]] = ways[sides[1]]()
        ours, plain = made["ours"], made["plain"]
        ours_result, plain_result = (np.asarray(r, np.float64) for r in (case.run(ours), case.run_by_hand(plain)))
        if not plain_result.ndim:  # the loss by hand is the mean of the losses that a session gives
            ours_result = ours_result.mean()
        found["off"] = float(np.abs(ours_result - plain_result).max() / np.abs(plain_result).max())
        pair = paired(lambda: case.run(ours), lambda: case.run_by_hand(plain), repeats=repeats)
        found |= {"what": case.what, "units": case.units, "run": pair[0], "plain_run": pair[1]}
    return found


def row_of(row: str, arguments: argparse.Namespace) -> tuple[Any, ...]:
    """A row of the table, measured in four processes: each side alone, then both in either order."""
    with tempfile.TemporaryDirectory() as parent:
        folders = {side: Path(parent, side) for side in ("ours", "plain")}

        def child(sides: str, folder: Path) -> dict[str, Any]:
            command = [sys.executable, __file__, "--child", row, "--sides", sides, "--folder", str(folder)]
            command += ["--precision", arguments.precision, "--repeats", str(arguments.repeats)]
            command += ["--small"] * arguments.small
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
            return json.loads(done.stdout.splitlines()[-1])

        cold = [child(side, folder)["compile"] for side, folder in folders.items()]
        shutil.copytree(folders["plain"], folders["ours"], dirs_exist_ok=True)
        both = [child(order, folders["ours"]) for order in ("ours,plain", "plain,ours")]
    run, plain = (1000 * min(one[key] for one in both) for key in ("run", "plain_run"))
    warm = [one["compile"] for one in both]
    first = both[0]
    return (first["what"], run, plain, run / plain, 1000 * first["units"] / run, first["off"], *cold, *warm)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="some of %(default)s")
    parser.add_argument("--small", action="store_true", help="small sizes: whether it runs, not how fast")
    parser.add_argument("--precision", choices=("f32", "tf32"), default="f32", help="of products and convolutions")
    parser.add_argument("--repeats", type=int, default=9, help="measurements of each side, of which the median counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--sides", type=lambda text: text.split(","), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        import os

        from jax_backend import disk_cache

        os.environ[disk_cache.ENVIRONMENT] = str(arguments.folder)
        setup = Setup(arguments.small, arguments.precision)
        print(json.dumps(measured(arguments.child, setup, arguments.sides, arguments.repeats)))
        return
    names = arguments.rows.split(",")
    if unknown := set(names) - ROWS.keys():
        parser.error(f"--rows: expected some of {', '.join(ROWS)}, got {', '.join(sorted(unknown))}")
    rows: list[tuple[Any, ...]] = []
    failed: list[str] = []
    for name in names:
        try:
            rows.append(row_of(name, arguments))
        except subprocess.CalledProcessError as error:  # its process has said why; the other rows may run
            failed.append(name)
            print(f"{name}: failed with status {error.returncode}", file=sys.stderr, flush=True)
            continue
        cells = (f"{column} {cell:.3g}" for column, cell in zip(COLUMNS[1:], rows[-1][1:], strict=True))
        print(f"{rows[-1][0]}: {', '.join(cells)}", file=sys.stderr, flush=True)
    sizes = "small sizes, " if arguments.small else ""
    report(f"Meganeura's models ({sizes}{arguments.precision})", COLUMNS, rows)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
