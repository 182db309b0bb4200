"""Drawn graphs: well-formed, complete, and laid out downward."""

import stat
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from ir import F32, Add, Exp, Matmul, tensor
from ir.op import Op
from jax_backend.cli import cli
from jax_backend.drawing import dot_source, draw, html, layered, nodes, svg
from tests.sessions import FIXTURES

SVG = "{http://www.w3.org/2000/svg}"


def ops() -> list[Op]:
    """exp(x · w) + b, where x, w and b come from outside."""
    x, w, b, y, z, out = (tensor(n, (3, 3), F32) for n in range(6))
    return [Matmul(x, w, y), Exp(y, z), Add(z, b, out)]


@pytest.fixture
def no_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without graphviz."""
    monkeypatch.setenv("PATH", "")


def test_nodes_know_their_sources() -> None:
    graph = nodes(ops())
    assert [n.title for n in graph] == ["t0", "t1", "Matmul", "Exp", "t2", "Add"]
    assert [n.sources for n in graph] == [(), (), (0, 1), (2,), (), (3, 4)]
    assert graph[2].detail == "f32[3,3]"


def test_layout_goes_down_and_keeps_boxes_apart() -> None:
    graph = nodes(ops())
    boxes = layered(graph)
    for node, box in zip(graph, boxes, strict=True):
        assert all(boxes[s].y < box.y for s in node.sources)
    assert boxes[4].y == boxes[3].y  # b stands right above the sum that takes it
    for a in range(len(boxes)):
        for b in range(a):
            apart = boxes[a].x + boxes[a].width <= boxes[b].x or boxes[b].x + boxes[b].width <= boxes[a].x
            assert boxes[a].y != boxes[b].y or apart


@pytest.mark.usefixtures("no_dot")
def test_svg_is_well_formed_and_complete() -> None:
    root = ElementTree.fromstring(svg(ops()))
    assert len(root.findall(f".//{SVG}rect")) == 1 + 6  # the ground and a box each
    assert len(root.findall(f".//{SVG}path")) == 5
    tips = [t.text for t in root.iter(f"{SVG}title")]
    assert "Matmul(lhs=t0 f32[3,3], rhs=t1 f32[3,3], out=t3 f32[3,3])" in tips


@pytest.mark.usefixtures("no_dot")
def test_html_holds_everything_itself() -> None:
    page = html(ops())
    assert page.count("<svg") == 1
    assert "src=" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_nothing_draws_as_nothing() -> None:
    assert len(ElementTree.fromstring(draw([], [])).findall(f".//{SVG}text")) == 0


def test_dot_source_names_nodes_and_edges() -> None:
    source = dot_source(nodes(ops()))
    assert 'n2 [label="Matmul\\nf32[3,3]"' in source
    assert "n0 -> n2" in source
    assert source.count("->") == 5


@pytest.mark.parametrize(("script", "works"), [("echo '<?xml?><svg>dot</svg>'", True), ("echo no >&2; exit 3", False)])
def test_dot_draws_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, works: bool
) -> None:
    dot = tmp_path / "dot"
    dot.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
    dot.chmod(dot.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    if works:
        assert svg(ops()).strip() == "<svg>dot</svg>"
    else:
        with pytest.raises(OSError, match="dot failed: no"):
            svg(ops())


@pytest.mark.usefixtures("no_dot")
def test_the_command_draws_the_first_operations(tmp_path: Path) -> None:
    target = tmp_path / "graph.html"
    arguments = ["inspect", str(FIXTURES / "transformer.bxs"), "--graph", str(target), "--max-ops", "40"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "40 operations; --max-ops draws more of the 4309" in result.output
    assert target.read_text().count('class="node"') > 40


def test_the_command_refuses_another_format(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["inspect", str(FIXTURES / "tour.bxs"), "--graph", str(tmp_path / "a.png")])
    assert result.exit_code == 2
    assert "expected a name that ends in .svg or .html" in result.output
