"""How programs, tensors, recorders and sessions look in a notebook: HTML without scripts, light or dark as its page.

Looking computes nothing: a tensor shows its elements if they are there, what it will be if not.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np

from ir.op import Op, show_value, values
from ir.tensor import TensorIr
from jax_backend.cli.text import size
from jax_backend.repeats import Block, repeated_blocks

if TYPE_CHECKING:
    from jax_backend.function import Function
    from jax_backend.meganeura import Session
    from jax_backend.program import Program
    from jax_backend.recorder import Recorder
    from jax_backend.recording import Recording
    from jax_backend.tensor import Tensor
    from jax_backend.values import Value

SHOWN: Final = 8
"""Elements shown along an axis, and rows of a list that is not folded away."""

MAX_PREVIEW: Final = 1 << 20
"""Elements of a tensor that are brought to the host to be looked at."""

_STYLE: Final = files("jax_backend").joinpath("web", "notebook.css").read_text(encoding="utf-8")


def panel(title: str, facts: Iterable[str], *parts: str) -> str:
    """A frame with a title, a line of facts, and `parts`, which are HTML already."""
    line = " · ".join(escape(fact) for fact in facts if fact)
    return f'<style>{_STYLE}</style><div class="bx"><b>{escape(title)}</b> <small>{line}</small>{"".join(parts)}</div>'


def grid(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are aligned at the right."""

    def row(cells: Sequence[object], tag: str) -> str:
        marks = (' class="n"' if isinstance(cell, int) else "" for cell in cells)
        return f"<tr>{''.join(f'<{tag}{m}>{escape(str(c))}</{tag}>' for c, m in zip(cells, marks, strict=True))}</tr>"

    return f"<table>{row(header, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural.

    >>> counted(1, "input"), counted(2500, "input")
    ('1 input', '2,500 inputs')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def folded(summary: str, *parts: str, is_open: bool = False) -> str:
    """`parts`, which are HTML, behind a line that opens them."""
    return f"<details{' open' * is_open}><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def some(header: Sequence[str], rows: Sequence[Sequence[object]], noun: str) -> str:
    """A table, folded away where it is long, and nothing where it is empty."""
    if not rows:
        return ""
    return folded(counted(len(rows), noun), grid(header, rows), is_open=len(rows) <= SHOWN)


# ---- operations and programs


def operations(ops: Sequence[Op]) -> str:
    """A list of operations, blocks that repeat folded."""
    return _places(ops, repeated_blocks(ops), 0)


def _places(ops: Sequence[Op], places: Sequence[int | Block], shift: int) -> str:
    parts: list[str] = []
    plain: list[int] = []

    def end_table() -> None:
        if plain:
            rows = [(n, ops[n].kind, _types(ops[n].outputs), _types(ops[n].inputs), _static(ops[n])) for n in plain]
            parts.append(grid(("#", "operation", "gives", "takes", "with"), rows))
            plain.clear()

    for place in places:
        if isinstance(place, int):
            plain.append(place + shift)
            continue
        end_table()
        kinds = [op.kind for op in ops[place.start + shift :][: min(place.length, 5)]]
        more = ", .." if place.length > len(kinds) else ""
        title = f"{place.times} × {place.length} operations, the first: {', '.join(kinds)}{more}"
        parts.append(folded(title, _places(ops, place.body, shift)))
    end_table()
    return "".join(parts)


def _types(tensors: Sequence[TensorIr]) -> str:
    return ", ".join(map(str, tensors))


def _static(op: Op) -> str:
    return " ".join(f"{f.path}={show_value(v)}" for f, v in values(op) if not f.is_input and not f.is_output)


def function_html(function: "Function") -> str:
    """Inputs, parameters and outputs."""
    return panel(function.name, _signature(function), *_values_tables(function))


def program_html(program: "Program") -> str:
    """Inputs, parameters, outputs and operations."""
    ops = program.ops
    listed = folded(counted(len(ops), "operation"), operations(ops), is_open=len(ops) <= 3 * SHOWN)
    return panel(program.name, _signature(program), *_values_tables(program), listed)


def _signature(function: "Function") -> list[str]:
    given = sum(v.name in function.defaults for v in function.inputs)
    return [f"{counted(len(function.inputs), 'input')}, {given} recorded", counted(len(function.outputs), "output")]


def _values_tables(function: "Function") -> list[str]:
    def row(value: "Value") -> tuple[object, ...]:
        recorded = value.name in function.defaults
        is_scalar = recorded and value.role in ("scalar", "start")
        return (*_named(value), str(function.defaults[value.name]) if is_scalar else "recorded" if recorded else "")

    return [
        some(("name", "type", "value"), [row(v) for v in function.inputs], "input"),
        some(("name", "type", "value"), [row(v) for v in function.parameters], "parameter"),
        some(("name", "type"), [_named(v) for v in function.outputs], "output"),
    ]


def _named(value: "Value") -> tuple[str, str]:
    name, _, kind = str(value).partition(" ")
    return name, kind


def recording_html(recording: "Recording") -> str:
    """The programs that a recorder makes of a session, and why each ends where it does."""
    spans = recording.spans()
    rows = [(n, f"{s.start} to {s.stop}", s.stop - s.start, s.program, s.reason) for n, s in enumerate(spans)]
    counts = {"operation": recording.ops, "upload": recording.data, "read": recording.reads}
    facts = [counted(len(items), noun) for noun, items in counts.items()]
    return panel("Recording", facts, some(("#", "operations", "how many", "program", "ends by"), rows, "span"))


# ---- tensors and recorders


def tensor_html(tensor: "Tensor") -> str:
    """Type, and the elements if they are computed."""
    elements = math.prod(tensor.shape)
    facts = [f"t{tensor.id} in the stream", counted(elements, "element")]
    array = _computed(tensor)
    name = str(tensor.description).partition(" ")[2]
    if array is None:
        return panel(f"Tensor {name}", [*facts, "recorded; .numpy() computes it"])
    if tensor.dtype.is_quantized or not 0 < elements <= MAX_PREVIEW:
        return panel(f"Tensor {name}", [*facts, "computed"])
    return panel(f"Tensor {name}", [*facts, "computed"], preview(np.asarray(array)))


def _computed(tensor: "Tensor") -> jax.Array | None:
    """The array of a tensor, if it is there and the device is done with it."""
    recorder = _inner(tensor.recorder)
    array = recorder.handles.computed(tensor.id) if recorder else None
    return array if array is not None and array.is_ready() else None  # pyright: ignore[reportAttributeAccessIssue]


def _inner(recorder: Any) -> "Recorder | None":
    """The recorder that has the arrays, behind one that writes a capture."""
    from jax_backend.recorder import Recorder

    found = getattr(recorder, "recorder", recorder)
    return found if isinstance(found, Recorder) else None


def preview(array: np.ndarray) -> str:
    """The first elements of an array, and how all of them are spread."""
    wide = array.astype(np.float64) if array.dtype != np.bool_ else array.astype(np.int64)
    finite = wide[np.isfinite(wide)]
    facts = [f"{array.size - finite.size:,} not finite"] if finite.size < array.size else []
    if finite.size:
        facts += [f"min {finite.min():.4g}", f"mean {finite.mean():.4g}", f"max {finite.max():.4g}"]
    corner = array[tuple([0] * (array.ndim - 2) + [slice(SHOWN)] * min(array.ndim, 2))]
    rows = [[_number(x) for x in row] for row in np.atleast_2d(corner)]
    axes = ["0"] * (array.ndim - 2) + [f":{SHOWN}"] * min(array.ndim, 2)
    where = f"the part [{', '.join(axes)}]" if corner.size < array.size else ""
    chart = histogram(finite) if finite.size > SHOWN else ""
    numbers = grid([""] * len(rows[0]), rows)
    return f"<div><small>{' · '.join(facts)}</small></div>{chart}{numbers}<small>{where}</small>"


def _number(value: Any) -> str:
    return f"{float(value):.4g}" if np.issubdtype(np.asarray(value).dtype, np.floating) else str(value)


def histogram(numbers: np.ndarray, bins: int = 40) -> str:
    """How numbers are spread, as a small SVG."""
    counts, _ = np.histogram(numbers, bins)
    heights = 36 * counts / max(counts.max(), 1)
    bars = "".join(
        f'<rect x="{6 * n}" y="{36 - h:.1f}" width="5" height="{h:.1f}"/>' for n, h in enumerate(heights) if h
    )
    return f'<svg width="{6 * bins}" height="36">{bars}</svg>'


def recorder_html(recorder: Any) -> str:
    """What was recorded and run so far, and the programs with the reason why each was compiled."""
    inner = _inner(recorder)
    if inner is None:
        return panel(type(recorder).__name__, [])
    stats, cache = inner.stats, inner.cache.stats
    facts = (
        f"{type(recorder).__name__} on {inner.device}",
        f"{counted(inner.num_pending, 'operation')} pending",
        f"{stats.operations:,} run in {counted(stats.programs, 'program')}",
        f"{cache.compiles} compiled in {cache.compile_s:.2f} s",
        f"{counted(len(inner.handles), 'tensor')}, {size(inner.handles.size_bytes)}",
    )
    rows = [
        (n, len(e.graph.ops), f"{e.compile_s:.2f} s", e.reason or "-") for n, e in enumerate(inner.cache.executables())
    ]
    return panel(inner.name, facts, some(("#", "operations", "compiled in", "because"), rows, "program"))


def session_html(session: "Session") -> str:
    """Parameters and inputs of a graph's session."""
    parameters = [(name, list(shape)) for name, shape in session.parameters.items()]
    inputs = [(name, list(shape)) for name, shape in session.inputs.items()]
    facts = (f"on {session.device}", counted(sum(map(math.prod, session.parameters.values())), "number"))
    tables = some(("name", "shape"), parameters, "parameter"), some(("name", "shape"), inputs, "input")
    return panel("Session", facts, *tables)
