"""Draws a sequence of operations as a graph: SVG, or HTML with zoom and search. Self-contained, and imports no jax.

Where graphviz's `dot` is installed it lays the graph out; else a layered layout of ours does: a row per depth, within a
row by the mean place of what comes in.
"""

import shutil
import subprocess
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from ir.meganeura.ops import kinds as meganeura_kinds
from ir.op import Op
from ir.registry import families_of

COLOURS: Final = {
    "Base": "#dbe7f3",
    "Numeric": "#e3f1dc",
    "Float": "#fdebd0",
    "Int": "#f3e0f0",
    "Bool": "#eceff1",
    "Module": "#f9d9d3",
    "Activation": "#fff4c2",
    "Custom": "#d7f0ee",
    "Distributed": "#d7f0ee",
    "input": "#ffffff",
}
"""Fill by outer variant, dark text on it; `input` is a tensor that comes from outside."""

_OF_MEGANEURA: Final = {
    "leaf": "Base",
    "indexing": "Base",
    "elementwise": "Activation",
    "reduce": "Float",
    "linear": "Numeric",
    "norm": "Distributed",
    "attention": "Module",
    "conv": "Module",
}
"""The fill of each family of Meganeura's kinds: that of what is most like it."""

_HEIGHT, _ROW, _GAP, _LETTER, _MARGIN = 34, 78, 18, 6.6, 20
_DOT_TIMEOUT_S = 60


class Node(NamedTuple):
    """A box: two lines of text, the whole operation as a tip, and the nodes whose outputs it takes."""

    title: str
    detail: str
    tip: str
    group: str
    sources: tuple[int, ...]


class Box(NamedTuple):
    """Where a node stands, in pixels; x and y are its upper left corner."""

    x: float
    y: float
    width: float


def nodes(ops: Sequence[Op]) -> list[Node]:
    """The boxes of `ops`, sources before what takes them; a tensor from outside is a box of its own."""
    made: list[Node] = []
    maker: dict[int, int] = {}
    for op in ops:
        sources: dict[int, None] = {}
        for tensor in op.inputs:
            if tensor.id.value not in maker:
                maker[tensor.id.value] = len(made)
                made.append(Node(f"t{tensor.id.value}", str(tensor).partition(" ")[2], str(tensor), "input", ()))
            sources[maker[tensor.id.value]] = None
        detail = ", ".join(str(t).partition(" ")[2] for t in op.outputs)
        made.append(Node(op.kind, detail, str(op), _group(op), tuple(sources)))
        maker.update((t.id.value, len(made) - 1) for t in op.outputs)
    return made


def _group(op: Op) -> str:
    kind = type(op)
    if kind in meganeura_kinds().values():
        return _OF_MEGANEURA[kind.__module__.rpartition(".")[2]]
    family = families_of(kind)[0]
    return next((name for name in COLOURS if family.startswith(name)), "Custom")


def layered(graph: Sequence[Node]) -> list[Box]:
    """A place for each node: a row above all that takes it, ordered along the row by where its sources stand."""
    depth: list[int] = []
    for node in graph:
        depth.append(1 + max((depth[s] for s in node.sources), default=-1))
    below: dict[int, int] = {}
    for number in reversed(range(len(graph))):  # as low as its uses allow: a reshaped weight stands by its product
        depth[number] = below.get(number, depth[number] + 1) - 1
        for source in graph[number].sources:
            below[source] = min(below.get(source, depth[number]), depth[number])
    rows: dict[int, list[int]] = {}
    for number in range(len(graph)):
        rows.setdefault(depth[number], []).append(number)
    centre: dict[int, float] = {}
    boxes: dict[int, Box] = {}
    for level in sorted(rows):

        def wanted(number: int) -> float:
            placed = [centre[s] for s in graph[number].sources if s in centre]
            return sum(placed) / len(placed) if placed else float(number)

        row = sorted(rows[level], key=wanted)
        widths = [_width(graph[n]) for n in row]
        x = -(sum(widths) + _GAP * (len(row) - 1)) / 2
        for number, width in zip(row, widths, strict=True):
            boxes[number] = Box(x, level * _ROW, width)
            centre[number] = x + width / 2
            x += width + _GAP
    left = min((b.x for b in boxes.values()), default=0)
    return [Box(boxes[n].x - left + _MARGIN, boxes[n].y + _MARGIN, boxes[n].width) for n in range(len(graph))]


def _width(node: Node) -> float:
    return 20 + _LETTER * max(len(node.title), len(node.detail))


def svg(ops: Sequence[Op]) -> str:
    """The graph of `ops` as an SVG document."""
    graph = nodes(ops)
    dot = shutil.which("dot")
    return laid_out_by_dot(dot, graph) if dot else draw(graph, layered(graph))


def draw(graph: Sequence[Node], boxes: Sequence[Box]) -> str:
    """The nodes in their places as an SVG document."""
    width = max((b.x + b.width for b in boxes), default=0) + _MARGIN
    height = max((b.y for b in boxes), default=0) + _HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" font-size="11" text-anchor="middle">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        '<g fill="none" stroke="#90a4ae">',
    ]
    for node, box in zip(graph, boxes, strict=True):
        for source in node.sources:
            start = boxes[source]
            x1, y1, x2, y2 = start.x + start.width / 2, start.y + _HEIGHT, box.x + box.width / 2, box.y
            mid = (y1 + y2) / 2
            parts.append(f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {mid:.0f} {x2:.0f} {mid:.0f} {x2:.0f} {y2:.0f}"/>')
    parts.append("</g>")
    for node, box in zip(graph, boxes, strict=True):
        x, radius = box.x + box.width / 2, 16 if node.group == "input" else 5
        parts.append(
            f'<g class="node"><title>{escape(node.tip)}</title><rect x="{box.x:.0f}" y="{box.y:.0f}" '
            f'width="{box.width:.0f}" height="{_HEIGHT}" rx="{radius}" fill="{COLOURS[node.group]}" stroke="#607d8b"/>'
            f'<text x="{x:.0f}" y="{box.y + 14:.0f}" font-weight="600">{escape(node.title)}</text>'
            f'<text x="{x:.0f}" y="{box.y + 27:.0f}" fill="#455a64">{escape(node.detail)}</text></g>'
        )
    return "\n".join([*parts, "</svg>\n"])


def dot_source(graph: Sequence[Node]) -> str:
    """The graph in graphviz's language."""
    lines = ['digraph ops {node [shape=box style="filled,rounded" fontname="sans-serif" fontsize=11]']
    for number, node in enumerate(graph):
        label = f"{node.title}\\n{node.detail}".replace('"', r"\"")
        tip = node.tip.replace("\\", r"\\").replace('"', r"\"")
        lines.append(f'n{number} [label="{label}" tooltip="{tip}" fillcolor="{COLOURS[node.group]}"]')
        lines += [f"n{source} -> n{number}" for source in node.sources]
    return "\n".join([*lines, "}\n"])


def laid_out_by_dot(dot: str, graph: Sequence[Node]) -> str:
    """The graph as `dot` draws it.

    Raises:
        OSError: `dot` failed.
    """
    done = subprocess.run(
        [dot, "-Tsvg"], input=dot_source(graph), capture_output=True, text=True, timeout=_DOT_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise OSError(f"{dot} failed: {done.stderr.strip()}")
    return done.stdout[done.stdout.index("<svg") :]


_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>burn-xla graph</title>
<style>
body{margin:0;font-family:sans-serif;overflow:hidden;height:100vh}
header{position:fixed;z-index:1;margin:8px;padding:6px 10px;background:#fffd;border:1px solid #b0bec5;border-radius:6px}
#view{width:100vw;height:100vh;cursor:grab}
#view>svg{transform-origin:0 0}
.dim{opacity:.15}
</style>
<header><label>Find <input id="find" type="search" placeholder="Matmul, f32[64,48], t12"></label>
<span id="count"></span> · wheel zooms, drag moves</header>
<div id="view">SVG</div>
<script>
const view=document.getElementById('view'),svg=view.firstElementChild,find=document.getElementById('find');
let x=0,y=0,scale=1,held=null;
const move=()=>{svg.style.transform=`translate(${x}px,${y}px) scale(${scale})`};
view.addEventListener('wheel',e=>{e.preventDefault();const f=Math.exp(-e.deltaY/500);
x=e.clientX-(e.clientX-x)*f;y=e.clientY-(e.clientY-y)*f;scale*=f;move()},{passive:false});
view.addEventListener('pointerdown',e=>{held=[e.clientX-x,e.clientY-y];view.setPointerCapture(e.pointerId)});
view.addEventListener('pointermove',e=>{if(held){x=e.clientX-held[0];y=e.clientY-held[1];move()}});
view.addEventListener('pointerup',()=>{held=null});
find.addEventListener('input',()=>{const wanted=find.value.toLowerCase();let n=0;
for(const node of svg.querySelectorAll('.node')){const hit=node.textContent.toLowerCase().includes(wanted);
node.classList.toggle('dim',!hit);n+=hit}
document.getElementById('count').textContent=wanted?`${n} found`:''});
</script></html>
"""


def html(ops: Sequence[Op]) -> str:
    """The graph of `ops` as a page that zooms, moves and searches."""
    return _PAGE.replace("SVG", svg(ops))
