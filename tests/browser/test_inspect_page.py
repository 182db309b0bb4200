"""The page of `burn-xla inspect --html`, opened, searched and clicked through in a browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, Page, expect

from jax_backend import CapturingRecorder, Recorder
from jax_backend.cli import cli
from tests.jax_backend.test_session_report import record_layers

pytestmark = pytest.mark.xdist_group("browser")

LAYERS = 3
SHAPES = ((5, 7), (3, 7))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a session with two programs of three equal layers each; the second one runs twice."""
    folder = tmp_path_factory.mktemp("page")
    with (folder / "layers.bxs").open("wb") as file, CapturingRecorder(Recorder(), file) as recorder:
        for shape in (*SHAPES, SHAPES[1]):
            record_layers(recorder, np.ones(shape, np.float32), LAYERS)
    target = folder / "out.html"
    done = CliRunner().invoke(cli, ["inspect", str(folder / "layers.bxs"), "--html", str(target), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("out.html: 36 operations, 3 runs of 2 programs\n")
    return target


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, html: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page, open; it must load nothing else and raise nothing."""
    page = browser.new_page(color_scheme=request.param, viewport={"width": 1400, "height": 900})
    page.set_default_timeout(10_000)
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(html.as_uri())
    page.wait_for_selector("body[data-ready]")
    yield page
    page.close()
    assert errors == []
    assert asked == [html.as_uri()]


def test_it_lists_programs_and_runs_and_says_why(page: Page) -> None:
    expect(page).to_have_title("layers.bxs · burn-xla")
    expect(page.locator("#facts")).to_contain_text("36 operations · 3 runs of 2 programs · 3 reads")
    expect(page.locator("#programs .pick")).to_have_count(2)
    expect(page.locator("#runs .run")).to_have_text(
        [re.compile("program 0.* · end"), re.compile("program 1.* · end"), re.compile("program 1.* · known")]
    )
    page.locator("#programs .pick").nth(1).click()
    expect(page.locator("#program h3")).to_have_text("Program 1: 12 operations, 2 runs")
    expect(page.locator("#reason")).to_contain_text("f32[5,7] before, f32[3,7] now; pad to one shape")
    expect(page.locator("#cut")).to_contain_text("a read, a sync, a collective or the end follows; or a program")


def test_equal_layers_fold_and_each_round_can_be_seen(page: Page) -> None:
    page.locator("#programs .pick").nth(0).click()
    page.locator("#collapse").click()
    block = page.locator("tr.block")
    expect(block).to_have_count(1)
    expect(block).to_contain_text(f"{LAYERS} × 4 operations")
    expect(page.locator("tr.op")).to_have_count(0)
    block.click()
    expect(page.locator("tr.op")).to_have_count(4)
    assert page.locator("tr.op").first.get_attribute("data-op") == "0"
    page.get_by_title("next round").click()
    expect(block).to_contain_text("round 2 of 3")
    assert page.locator("tr.op").first.get_attribute("data-op") == "4"
    block.click(position={"x": 5, "y": 5})
    expect(page.locator("tr.op")).to_have_count(0)


def test_search_finds_by_kind_and_by_shape_in_every_program(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("matmul [3,")
    expect(page.locator("#found")).to_have_text(re.compile("of 12$"))
    expect(page.locator("#programs small")).to_have_text(["0 found", f"{LAYERS} found"])
    page.locator("#programs .pick").nth(1).click()
    expect(page.locator("tr.op")).to_have_count(LAYERS)
    expect(page.locator("tr.op mark").first).to_have_text("Matmul")
    page.locator("#find").fill("")
    expect(page.locator("tr.op mark")).to_have_count(0)


def test_an_operation_shows_its_operands_and_its_instructions(page: Page) -> None:
    page.locator("#programs .pick").nth(0).click()
    page.locator("#find").fill("exp")
    page.locator("tr.op").last.click()
    detail = page.locator("#detail")
    expect(detail.locator("h3").first).to_have_text("10 · Exp")
    expect(detail.locator("pre")).to_contain_text("exponential(")
    expect(detail).to_contain_text("140 B out")
    page.locator("#find").fill("")
    detail.get_by_role("button", name=re.compile("Add")).click()
    expect(detail.locator("h3").first).to_have_text("9 · Add")
    expect(page.locator("tr[data-op='9']")).to_have_attribute("aria-selected", "true")
    expect(page.locator("tr.block")).to_contain_text("round 3 of 3")


def test_the_whole_hlo_opens_and_closes(page: Page) -> None:
    page.get_by_role("button", name="HLO of the program").click()
    expect(page.locator("#hlo pre")).to_contain_text("HloModule")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#hlo")).to_be_hidden()


def test_the_memory_chart_leads_to_the_operation_under_the_pointer(page: Page) -> None:
    chart = page.locator("#charts svg")
    box = chart.bounding_box()
    assert box is not None
    chart.click(position={"x": box["width"] * 0.99, "y": 5})
    expect(page.locator("tr[data-op='11']")).to_have_attribute("aria-selected", "true")


def test_nothing_is_wider_than_the_window(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 900, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
