"""Every form that Burn's interpreter runs, on it and on ours: the same answers, but for what is known and explained."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ir
from ir.registry import forms
from ir.wire.capture import read_messages
from jax_backend import host
from jax_backend.recorder import Recorder
from jax_backend.replay import Read, replay
from tests.burn import exemptions, shrink
from tests.burn.case import Case, fill
from tests.burn.compare import Outcome, compare, kolmogorov_smirnov
from tests.burn.differential import Judge, campaign, sketches
from tests.burn.draw import INTS, Draw
from tests.burn.generators import Operand, Plan, families, forms_of, missing

SEED = 1
STRUCTURES = {"bool": 6, "control": 2, "indexing": 3, "int": 2, "linear": 4, "attention": 4}
"""Plans per form and dtype; 1 where compiling them takes its time."""
FILLS = 4


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as judge:
        yield judge


@pytest.mark.parametrize("family", families())
def test_family(judge: Judge, family: str) -> None:
    """Both sides execute every form, compiled and, for a sample, operation by operation, and agree."""
    report = campaign(
        judge, forms_of(family), seed=SEED, structures=STRUCTURES.get(family, 1), fills=FILLS, eager_every=16
    )
    assert not report.differences, "\n\n".join(found.text for found in report.differences[:5])
    never = {form.path for form in forms_of(family) if not report.both[form.path]}
    assert never == {path for path in exemptions.CANNOT_RUN if path in report.seen}


def test_every_form_is_generated() -> None:
    assert not missing()
    assert exemptions.CANNOT_RUN.keys() <= forms().keys()


def test_every_exemption_is_explained() -> None:
    """docs/differences.md names each of them."""
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    names = [e.name for e in exemptions.EXEMPTIONS]
    assert len(set(names)) == len(names)
    assert [name for name in names if f"`{name}`" not in text] == []


def test_burn_executes_every_dtype(judge: Judge) -> None:
    """What the families are run for: each form on each dtype, but for ints that Flex cannot multiply or average."""
    among = [form for family in families() for form in forms_of(family) if form.path not in exemptions.CANNOT_RUN]
    made = list(sketches(among, SEED, 8))
    cases = [fill(s.form, s.plan, Draw(np.random.default_rng([SEED, n])), 0) for n, s in enumerate(made)]
    outcomes = judge.burn(cases, SEED)
    executed = {(s.form.path, s.dtype) for s, o in zip(made, outcomes, strict=True) if o.refusal is None}
    never = {("NumericInt.Mean", d) for d in INTS if not d.is_signed}
    never |= {("Int.Matmul", d) for d in INTS if d not in (ir.I32, ir.I64)}
    assert {(s.form.path, s.dtype) for s in made} - executed == never


def addition(elements: list[int]) -> Case:
    """[0, ..] + itself, with elements, statuses and aliases from `elements`."""
    operand = Operand((3,), ir.F32)
    return fill(forms()["NumericFloat.Add"], Plan(ir.Add, (operand, operand)), Draw(elements), 0)


def test_another_value_shape_or_live_id_is_seen(judge: Judge) -> None:
    case = addition([])
    burn, ours = judge.burn([case], 0)[0], judge.ours([case], 0)[0]
    assert compare(case, burn, ours, "") is None
    off = host.from_numpy(np.float32([0, 1e-6, 0]), ir.F32)
    longer = host.from_numpy(np.zeros(4, np.float32), ir.F32)
    for wrong, reason in (
        (replace(ours, reads=(off,)), "1 of 3 elements differ"),
        (replace(ours, reads=(longer,)), "shape"),
        (replace(ours, live=ours.live | {40}), "live ids"),
        (Outcome(refusal="no"), "ours refuses"),
    ):
        found = compare(case, burn, wrong, "")
        assert found is not None
        assert reason in found.reason


def test_other_distribution_is_seen() -> None:
    rng = np.random.default_rng(0)
    uniform, same, normal = rng.random(4096), rng.random(4096), rng.normal(0.5, 0.3, 4096)
    assert kolmogorov_smirnov(uniform, same) < 0.04 < kolmogorov_smirnov(uniform, normal)


def test_fuzzer_ends_with_a_count_per_form(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "fuzz_against_burn.py"
    arguments = ["--minutes", "0.001", "--family", "bool", "--json", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)
    assert summary["found"] == 0
    assert summary["forms"].keys() == {"Bool.Not", "Bool.And", "Bool.Or", "Bool.Xor"}
    assert all(counts["both"] == counts["cases"] > 0 for counts in summary["forms"].values())
    assert list(tmp_path.iterdir()) == []


def test_difference_shrinks_to_a_capture(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Division by zero, no longer exempt, comes down to one element, and replays from the file that is kept."""
    monkeypatch.setattr(exemptions, "EXEMPTIONS", ())
    form = forms()["NumericInt.Div"]
    found = campaign(judge, [form], seed=SEED, structures=2, fills=2).differences[0]
    small = shrink.shrink(judge, found, seconds=20)
    difference = shrink.replayed(judge, small)
    assert difference is not None
    assert [t.shape.dims for t in difference.case.op.inputs] == [(2,), (2,)]
    assert any(found.elements)
    assert not any(small.elements)
    path = tmp_path / "difference.bxs"
    shrink.save(difference, path)
    (answer,) = replay(read_messages(path), Recorder(seed=0))
    assert isinstance(answer, Read)
    assert host.to_numpy(answer.result.result()).shape == (2,)
