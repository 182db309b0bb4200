"""`burn-xla inspect`: what a recorded session or a Meganeura graph holds.

Imports no jax, unless it is to run the session for `--html`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ir.formats import is_graph_file
from ir.op import Op
from jax_backend.cli.text import size, table
from jax_backend.inspection import Summary, operations, summarise

if TYPE_CHECKING:
    from ir.meganeura import Graph


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--top", default=20, show_default=True, help="Kinds and shapes to list, most frequent first.")
@click.option(
    "--graph",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the operations into a .svg or .html file.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Run it and write a page: programs, why they were cut and compiled, time and memory, HLO.",
)
@click.option("--device", default=None, help="With --html: cpu, gpu, tpu, or a number; default: the first there is.")
@click.option("--max-ops", default=300, show_default=True, help="Operations to draw, from the first on.")
def command(
    file: Path, as_json: bool, top: int, graph: Path | None, html: Path | None, device: str | None, max_ops: int
) -> None:
    """Show the operations, tensors, bytes and shapes in FILE.

    FILE is a session, a capture (.bxs) or JSON lines, or a Meganeura graph, JSON or msgpack.
    """
    if is_graph_file(file):
        show_graph(file, as_json=as_json, top=top, drawing=graph, html=html, max_ops=max_ops, device=device)
        return
    if graph is not None:
        draw(file, graph, max_ops)
    if html is not None:
        write_page(file, html, device)
    if graph is None and html is None:
        summary = summarise(file)
        click.echo(msgspec.json.encode(summary).decode() if as_json else report(summary, top))


def report(summary: Summary, top: int) -> str:
    """The summary as text."""
    answers = f", {summary.answers} answers" if summary.answers else ""
    lines = [
        f"{sum(summary.messages.values())} messages{answers}",
        f"{summary.operations} operations ({summary.inits} Init and {summary.drops} Drop apart)",
        f"{summary.graphs} graphs registered, {summary.graph_executions} executions of them",
        f"{summary.uploads} tensors uploaded, {size(summary.uploaded_bytes)}",
        f"{summary.computed_tensors} tensors computed, {size(summary.computed_bytes)}, the largest {summary.largest}",
        f"{summary.reads} reads",
    ]
    return "\n".join(
        [
            *lines,
            "",
            _counts("message", summary.messages, len(summary.messages)),
            "",
            _counts("family", summary.families, len(summary.families)),
            "",
            _counts("operation", summary.forms, top),
            "",
            _counts("output", summary.types, top),
        ]
    )


def _counts(title: str, counts: Counter[str], top: int) -> str:
    rows = counts.most_common(top)
    hidden = len(counts) - len(rows)
    return table((title, "count"), rows) + (f"\n({hidden} more; --top lists them)" if hidden > 0 else "")


def draw(file: Path, target: Path, max_ops: int) -> None:
    """Draw the operations of a session into a file.

    Raises:
        click.UsageError: the file's name ends in neither .svg nor .html.
    """
    from ir.ops.control import Drop, Init
    from ir.wire.capture import read_messages

    draw_ops([o.op for o in operations(read_messages(file)) if not isinstance(o.op, Init | Drop)], target, max_ops)


def draw_ops(ops: Sequence[Op], target: Path, max_ops: int) -> None:
    """Draw operations into a file.

    Raises:
        click.UsageError: the file's name ends in neither .svg nor .html.
    """
    from jax_backend.drawing import html, svg

    writers = {".svg": svg, ".html": html}
    if target.suffix not in writers:
        raise click.UsageError(f"--graph: expected a name that ends in .svg or .html, got {target.name}")
    target.write_text(writers[target.suffix](ops[:max_ops]), encoding="utf-8")
    left_out = f"; --max-ops draws more of the {len(ops)}" if len(ops) > max_ops else ""
    click.echo(f"{target}: {min(len(ops), max_ops)} operations{left_out}")


def show_graph(
    file: Path,
    *,
    as_json: bool,
    top: int,
    drawing: Path | None,
    html: Path | None,
    max_ops: int,
    device: str | None,
) -> None:
    """Show, draw or run a Meganeura graph."""
    from ir.meganeura.files import load_graph
    from jax_backend.cli import inspect_graph

    graph = load_graph(file)
    if drawing is not None:
        draw_ops(inspect_graph.live_ops(graph), drawing, max_ops)
    if html is not None:
        write_graph_page(file, graph, html, device)
    if drawing is None and html is None:
        summary = inspect_graph.summarise(graph)
        click.echo(msgspec.json.encode(summary).decode() if as_json else inspect_graph.report(summary, top))


def write_graph_page(file: Path, graph: "Graph", target: Path, device: str | None) -> None:
    """Run a graph on zeros and write what became of it as a page."""
    from jax_backend import devices

    devices.prepare(device or "")
    from ir.meganeura import program
    from jax_backend.report_page import page
    from jax_backend.session_report import graph_report

    chosen = devices.find_device(device) if device else None
    found = graph_report(file.name, program(graph).relative(), chosen)
    target.write_text(page(found), encoding="utf-8")
    click.echo(f"{target}: {found.operations} operations")


def write_page(file: Path, target: Path, device: str | None) -> None:
    """Run a session and write what became of it as a page."""
    from jax_backend import devices

    devices.prepare(device or "")
    from ir.wire.capture import read_messages
    from jax_backend.cli.progress import tracked
    from jax_backend.report_page import page
    from jax_backend.session_report import report

    chosen = devices.find_device(device) if device else None
    with tracked(sum(1 for _ in read_messages(file)), "messages") as tick:
        found = report(file.name, tick(read_messages(file)), chosen)
    target.write_text(page(found), encoding="utf-8")
    failed = f"; {len(found.failures)} reads failed" if found.failures else ""
    click.echo(
        f"{target}: {found.operations} operations, {len(found.runs)} runs of {len(found.programs)} programs{failed}"
    )
