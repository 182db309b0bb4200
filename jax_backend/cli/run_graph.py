"""The part of `burn-xla run` for Meganeura graphs: leaves from files, outputs on the screen or into files."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec
import numpy as np

from ir.errors import WireError
from ir.meganeura import Compat, Graph
from jax_backend.cli.progress import waiting
from jax_backend.cli.run import preview
from jax_backend.cli.text import plain

if TYPE_CHECKING:
    from jax_backend.meganeura import Session


class GraphOptions(NamedTuple):
    """What `burn-xla run` takes for a graph alone."""

    inputs: tuple[str, ...]
    weights: Path | None
    compat: Compat
    save: Path | None


def run_graph_file(
    graph: Graph, options: GraphOptions, device: Any, precision: Any, store: Any, *, as_json: bool
) -> None:
    """Run a graph once and show, or write, what comes out.

    Raises:
        UnknownName, ShapeError, DTypeError: a file is for no leaf of the graph, or does not fit it.
        WireError: a file holds no array.
    """
    from jax_backend.meganeura import Session

    session = Session(graph, compat=options.compat, device=device, precision=precision, store=store)
    zeros = fill(session, options)
    began = time.perf_counter()
    with waiting(f"compiling {len(graph.ops())} nodes"):
        session.programs.prepare()
    session.step()
    outputs = [session.read_output(n) for n in range(session.num_outputs)]
    elapsed_s = time.perf_counter() - began
    if options.save is not None:
        options.save.mkdir(parents=True, exist_ok=True)
        for n, array in enumerate(outputs):
            np.save(options.save / f"output{n}.npy", array)
    summary = {
        "device": str(session.device),
        "nodes": len(graph.ops()),
        "left_at_zeros": zeros,
        "compile_s": round(session.programs.compile_s, 3),
        "loaded": session.programs.num_loaded,
        "total_s": round(elapsed_s, 3),
    }
    click.echo(as_json_text(outputs, summary) if as_json else as_text(outputs, summary))


def fill(session: "Session", options: GraphOptions) -> list[str]:
    """Set what `--weights` and `--input` name; returns the names of the leaves that stay zeros.

    Raises:
        UnknownName, ShapeError, DTypeError, WireError: as `run_graph_file`.
    """
    given: list[str] = []
    if options.weights is not None:
        kept = session.warm_start(options.weights)
        given += [name for name in session.parameters if name not in kept]
    for item in options.inputs:
        name, found, file = item.partition("=")
        if not found:
            raise click.UsageError(f"--input: expected NAME=FILE.npy, got {item}")
        is_parameter = name in session.parameters and name not in session.inputs
        (session.set_parameter if is_parameter else session.set_input)(name, load_array(Path(file)))
        given.append(name)
    return [name for name in (*session.inputs, *session.parameters) if name not in given]


def load_array(path: Path) -> np.ndarray:
    """The array in a .npy file.

    Raises:
        WireError: there is none in it.
        OSError: the file cannot be read.
    """
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise WireError(str(path), f"no .npy file: {error}") from None


def as_text(outputs: Sequence[np.ndarray], summary: dict[str, Any]) -> str:
    """The outputs by their first elements, and what the run took."""
    lines = [f"output {n}  {array.dtype.name}{list(array.shape)}  {preview(array)}" for n, array in enumerate(outputs)]
    lines.append(f"{summary['nodes']} nodes on {summary['device']}, {summary['total_s']:.2f} s")
    verb = "loading" if summary["loaded"] else "compiling"
    lines[-1] += f", of which {summary['compile_s']:.2f} s {verb}"
    if zeros := summary["left_at_zeros"]:
        more = f" and {len(zeros) - 10} more" if len(zeros) > 10 else ""
        lines.append(f"zeros, as nobody set them: {', '.join(zeros[:10])}{more}")
    return "\n".join(lines)


def as_json_text(outputs: Sequence[np.ndarray], summary: dict[str, Any]) -> str:
    """The whole run as one JSON object; NaN and infinities are strings, as in the answers of a session."""
    shown = [{"shape": a.shape, "dtype": a.dtype.name, "values": plain(a.tolist())} for a in outputs]
    return msgspec.json.encode({"outputs": shown, "summary": summary}).decode()
