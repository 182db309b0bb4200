"""Compare with Burn's own interpreter for as long as one likes, on cases nobody wrote down.

    python scripts/fuzz_against_burn.py --minutes 30 [--seed 7] [--family conv] [--json]

Each round takes a family, makes new structures of every form and dtype, compiles them as one program and runs it on
many sets of elements. A disagreement that `tests/burn/exemptions.py` does not cover is made small, printed, and kept as
`<folder>/<form>-<n>.bxs`, which `burn-xla run --check` replays. Exit status 1 if there was any.
"""

import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.burn.differential import Judge, Report, campaign
from tests.burn.generators import families, forms_of
from tests.burn.shrink import replayed, save, shrink

STRUCTURES, FILLS = 2, 12
"""Plans per form and dtype, and sets of elements for each: running costs little, compiling much."""
ROUNDS_PER_PROCESS = 17
"""XLA does not give the memory of a program back, so a process does each family once and ends."""
SHRINK_S = 20.0
SHOWN = 3
"""Disagreements of one form that are made small and kept, per round."""


class Round(NamedTuple):
    """What one process does at a time."""

    family: str
    seed: int
    folder: Path


class Result(NamedTuple):
    """What came of it: the report, and the captures that were kept, by path."""

    report: Report
    kept: dict[str, str]


def run(given: Round) -> Result:
    """Run one round; called in a process of its own."""
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    with Judge() as judge:
        report = campaign(
            judge, forms_of(given.family), seed=given.seed, structures=STRUCTURES, fills=FILLS, eager_every=64
        )
        by_form: dict[str, int] = {}
        kept: dict[str, str] = {}
        for found in report.differences:
            by_form[found.path] = by_form.get(found.path, 0) + 1
            if by_form[found.path] > SHOWN:
                continue
            small = shrink(judge, found, seconds=SHRINK_S)
            if (difference := replayed(judge, small)) is None:
                kept[f"{found.path} (seed {given.seed}, not alone)"] = found.text
                continue
            path = given.folder / f"{found.path}-{given.seed}-{by_form[found.path]}.bxs"
            save(difference, path)
            kept[str(path)] = small.text
    return Result(report, kept)


def rounds(chosen: tuple[str, ...], seed: int, folder: Path) -> Iterator[Round]:
    """The families in turn, with a new seed each time."""
    for number, family in zip(count(seed * 1_000_000), cycle(chosen), strict=False):
        yield Round(family, number, folder)


@click.command()
@click.option("--minutes", type=float, required=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--family", type=click.Choice(families()), multiple=True, help="May be repeated; default: all.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("fuzz"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def main(minutes: float, seed: int, family: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Run cases until the time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    total, start = Report(), time.monotonic()
    kept: dict[str, str] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=ROUNDS_PER_PROCESS) as pool:
        for given in rounds(family or families(), seed, folder):
            elapsed = time.monotonic() - start
            if elapsed > 60 * minutes:
                break
            report, found = pool.submit(run, given).result()
            total.add(report)
            kept |= found
            say(f"{elapsed / 60:6.1f} min  {total.seen.total():>9,} cases  {given.family:<12} {len(kept)} found")
            for path, text in found.items():
                say(f"{path}\n{text}\n")
    elapsed = time.monotonic() - start
    summary = {
        "minutes": round(elapsed / 60, 1),
        "cases": total.seen.total(),
        "executed_by_both": total.both.total(),
        "exempted": dict(total.exempted.most_common()),
        "found": len(total.differences),
        "kept": kept,
        "forms": {path: {"cases": n, "both": total.both[path]} for path, n in sorted(total.seen.items())},
    }
    click.echo(json.dumps(summary) if as_json else table(summary, total))
    sys.exit(1 if total.differences else 0)


def say(text: str) -> None:
    """Progress goes beside the result."""
    click.echo(text, err=True)


def table(summary: dict[str, object], total: Report) -> str:
    """The summary for people: a line per form."""
    lines = [f"{path:<44} {n:>9,} cases {total.both[path]:>9,} by both" for path, n in sorted(total.seen.items())]
    lines += [f"exempt: {name:<44} {n:>9,}" for name, n in total.exempted.most_common()]
    lines.append(
        f"{total.seen.total():,} cases in {summary['minutes']} min, {total.both.total():,} executed by both sides, "
        f"{len(total.differences)} unexplained differences"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
