"""`burn-xla run`: run a recorded session, print its reads, compare them with the recorded answers; or run a graph."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from ir.formats import is_graph_file
from jax_backend.cli.progress import tracked
from jax_backend.cli.text import plain

if TYPE_CHECKING:
    from ir.meganeura import Compat
    from jax_backend.cache import ProgramCache
    from jax_backend.check import Outcome
    from jax_backend.recorder import Recorder

SESSION_OPTIONS = ("check", "eager", "verify", "dump_hlo", "seed")
GRAPH_OPTIONS = ("inputs", "weights", "compat", "save")
SHOWN = 12
"""Elements of a tensor that are printed; JSON has them all."""


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", default=None, help="cpu, gpu, tpu, or a number; default: the first there is.")
@click.option("--check", is_flag=True, help="Compare with the recorded answers; exit 1 where they differ.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--eager", is_flag=True, help="Run each operation by itself, uncompiled: slow, finds faults.")
@click.option("--verify", type=click.Choice(["off", "cheap", "full"]), default="cheap", show_default=True)
@click.option("--dump-hlo", type=click.Path(file_okay=False, path_type=Path), help="Write each compiled program there.")
@click.option(
    "--precision",
    type=click.Choice(["highest", "default"]),
    default="highest",
    show_default=True,
    help="Of f32 products: full f32, or the device's fast path (TF32, bf16).",
)
@click.option("--seed", type=int, default=None, help="Of the random state; default: drawn.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write compiled programs on disk.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="Of a graph: an input or a parameter.")
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="Of a graph: parameters, as safetensors.")
@click.option("--compat", type=click.Choice(["0.2"]), help="Of a graph: what Meganeura 0.2 does where it errs.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), help="Of a graph: write output0.npy there.")
@click.pass_context
def command(
    context: click.Context,
    file: Path,
    device: str | None,
    check: bool,
    as_json: bool,
    eager: bool,
    verify: str,
    dump_hlo: Path | None,
    precision: str,
    seed: int | None,
    no_cache: bool,
    inputs: tuple[str, ...],
    weights: Path | None,
    compat: "Compat",
    save: Path | None,
) -> None:
    """Run FILE and print what it reads, or gives.

    FILE is a session, a capture (.bxs) or JSON lines, or a Meganeura graph, JSON or msgpack, which runs once.
    """
    is_graph = is_graph_file(file)
    refuse_options(context, SESSION_OPTIONS if is_graph else GRAPH_OPTIONS, "session" if is_graph else "graph")
    from jax_backend import devices, disk_cache

    devices.prepare(device or "")
    store = None if no_cache else disk_cache.enable()
    import jax

    from ir.verify import Level
    from jax_backend.cache import ProgramCache
    from jax_backend.recorder import Recorder

    chosen = devices.find_device(device) if device else None
    products = jax.lax.Precision[precision.upper()]
    if is_graph:
        from ir.meganeura.files import load_graph
        from jax_backend.cli.run_graph import GraphOptions, run_graph_file

        options = GraphOptions(inputs, weights, compat, save)
        run_graph_file(load_graph(file), options, chosen, products, store, as_json=as_json)
        return
    cache = ProgramCache(precision=products, store=store)
    recorder = Recorder(chosen, cache=cache, eager=eager, verify=Level(verify), name=file.name, seed=seed)
    outcomes, summary = run(file, recorder, check=check, on_outcome=None if as_json else show)
    if dump_hlo is not None:
        dump(cache, dump_hlo)
    click.echo(as_json_text(outcomes, summary) if as_json else summary_text(outcomes, summary, check=check))
    if summary["bad"]:
        sys.exit(1)


def refuse_options(context: click.Context, names: Sequence[str], owner: str) -> None:
    """Refuse options that mean nothing for this file.

    Raises:
        click.UsageError: one of `names` is given; they are for a file that holds `owner`.
    """
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + ("input" if name == "inputs" else name.replace("_", "-"))
            raise click.UsageError(f"{option}: expected a file that holds a {owner}")


def run(
    file: Path, recorder: "Recorder", *, check: bool, on_outcome: Callable[["Outcome"], None] | None
) -> tuple[list["Outcome"], dict[str, Any]]:
    """Play the session in `file` and wait for each of its reads, as its client did. Returns them, and the counts."""
    from ir.wire.capture import read_messages
    from jax_backend.check import outcome
    from jax_backend.replay import recorded_reads, replay

    num_messages = sum(1 for _ in read_messages(file))
    recorded = recorded_reads(read_messages(file)) if check else {}
    found: list[Outcome] = []
    began = time.perf_counter()
    with tracked(num_messages, "messages") as tick:
        for answer in replay(tick(read_messages(file)), recorder):
            found.append(outcome(answer, recorded.get(answer.request_id), check=check))
            if on_outcome is not None:
                on_outcome(found[-1])
        recorder.flush()
    return found, counts(recorder, found, time.perf_counter() - began)


def counts(recorder: "Recorder", outcomes: list["Outcome"], elapsed_s: float) -> dict[str, Any]:
    """What the run took."""
    stats, cache = recorder.stats, recorder.cache.stats
    return {
        "device": str(recorder.device),
        "precision": recorder.cache.precision.name.lower(),
        "operations": stats.operations,
        "reads": stats.reads,
        "programs": stats.programs,
        "compiles": cache.compiles,
        "compiled_operations": cache.compiled_ops,
        "hits": cache.hits,
        "compile_s": round(cache.compile_s, 3),
        "total_s": round(elapsed_s, 3),
        "compared": sum(o.comparison is not None for o in outcomes),
        "bad": sum(not o.is_good for o in outcomes),
    }


def show(outcome: "Outcome") -> None:
    """Print one read."""
    if outcome.tensor is None:
        click.echo(f"sync {outcome.request}  {verdict(outcome)}")
        return
    values = outcome.error or preview(outcome.values)
    click.echo(f"read {outcome.request}  {outcome.tensor}  {values}  {verdict(outcome)}".rstrip())
    if outcome.comparison is not None:
        for difference in outcome.comparison.first:
            index = ",".join(map(str, difference.index))
            click.echo(f"    [{index}] got {difference.got!r}, recorded {difference.want!r}")


def verdict(outcome: "Outcome") -> str:
    """How a read compares with its recorded answer."""
    comparison = outcome.comparison
    if comparison is None:
        return outcome.complaint
    note = f" ({comparison.note})" if comparison.note else ""
    if comparison.agrees:
        return f"agrees{note}"
    if not comparison.num_elements:
        return f"DIFFERS{note}"
    share = f"{comparison.num_different} of {comparison.num_elements}"
    return f"DIFFERS in {share} beyond {comparison.tolerance}, by {comparison.max_abs:.3g} at most{note}"


def preview(values: Any) -> str:
    """The first elements of an array."""
    flat = values.reshape(-1)[:SHOWN].tolist()
    shown = ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v).lower() for v in flat)
    return f"[{shown}{', ...' if values.size > SHOWN else ''}]"


def summary_text(outcomes: list["Outcome"], summary: dict[str, Any], *, check: bool) -> str:
    """The counts as text."""
    lines = [
        f"{summary['operations']} operations in {summary['programs']} programs on {summary['device']}, "
        f"{summary['compiles']} compiled ({summary['compiled_operations']} operations), {summary['hits']} hits",
        f"{summary['total_s']:.2f} s, of which {summary['compile_s']:.2f} s compiling",
    ]
    if check:
        used = {o.comparison.tolerance: o.tensor.dtype.short for o in outcomes if o.comparison and o.tensor}
        bounds = "; ".join(f"{dtype}: {tolerance}" for tolerance, dtype in used.items() if any(tolerance))
        agreeing = sum(o.is_good for o in outcomes)
        lines.append(
            f"{agreeing} of {len(outcomes)} answers agree ({bounds + '; the rest exact' if bounds else 'exact'})"
        )
    return "\n".join(lines)


def as_json_text(outcomes: list["Outcome"], summary: dict[str, Any]) -> str:
    """The whole run as one JSON object. NaN and infinities are the strings `NaN`, `Infinity` and `-Infinity`."""
    return msgspec.json.encode({"answers": [as_object(o) for o in outcomes], "summary": summary}).decode()


def as_object(outcome: "Outcome") -> dict[str, Any]:
    """One read for JSON."""
    made: dict[str, Any] = {"request": outcome.request, "error": outcome.error or None}
    if outcome.tensor is not None:
        made["tensor"] = outcome.tensor.id.value
        made["dtype"] = outcome.tensor.dtype.short
        made["shape"] = outcome.tensor.shape.dims
        made["values"] = None if outcome.values is None else plain(outcome.values.tolist())
    if outcome.complaint:
        made["complaint"] = outcome.complaint
    if (comparison := outcome.comparison) is not None:
        made["agrees"] = comparison.agrees
        made["tolerance"] = {"rtol": comparison.tolerance.rtol, "atol": comparison.tolerance.atol}
        made["different"] = comparison.num_different
        made["largest_difference"] = plain(comparison.max_abs)
        made["differences"] = [
            {"index": d.index, "got": plain(d.got), "recorded": plain(d.want)} for d in comparison.first
        ]
    return made


def dump(cache: "ProgramCache", folder: Path) -> None:
    """Write each compiled program: its operations, and the HLO that XLA made of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, executable in enumerate(cache.executables()):
        name = f"program-{number:03}-{len(executable.graph.ops)}-ops"
        (folder / f"{name}.txt").write_text("\n".join(map(str, executable.graph.ops)) + "\n", encoding="utf-8")
        (folder / f"{name}.hlo").write_text(executable.compiled.as_text() or "", encoding="utf-8")
