"""Compare with Meganeura itself for as long as one likes, on graphs nobody wrote down.

    python scripts/fuzz_against_meganeura.py --minutes 30 [--seed 7] [--kind Conv2d] [--json]

Each round takes a new seed: results and gradients of every kind, then a network of each sort under training. What
differs beyond `tests/meganeura/deviations.py` is printed and kept as `<folder>/<check>-<kind>-<seed>.json`, a graph for
`burn-xla run`; `tests/meganeura/checks.py` makes it again from kind and seed. Exit status 1 if there was any.
"""

import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.meganeura import checks, deviations
from tests.meganeura.making import Maker
from tests.meganeura.operations import ROWS
from tests.meganeura.referee import Referee

TRIALS_PER_PROCESS = 200
"""XLA does not give the memory of a program back, so a process ends after so many."""


class Trial(NamedTuple):
    """What to check of a graph, and what makes it: a kind, or the name of a network, and a seed."""

    check: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return "-".join(map(str, self))

    def make(self) -> Maker:
        """The graph."""
        makers = {"results": checks.results_of, "gradients": checks.loss_around, "network": checks.network}
        return makers[self.check](self.kind, self.seed)


@cache
def referee() -> Referee:
    """The one of this process."""
    return Referee()


def run(trial: Trial) -> str | None:
    """Why both sides differ, or nothing; called in a process of its own, since XLA may abort it."""
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    try:
        match trial.check:
            case "results":
                checks.check_results(referee(), trial.make())
            case "gradients":
                checks.check_gradients(referee(), trial.make(), trial.kind)
            case _:
                checks.check_network(referee(), trial.make())
    except Exception as error:  # whatever it is, the graph is kept and the search goes on
        return f"{type(error).__name__}: {error}"
    return None


def trials(kinds: tuple[str, ...], first_seed: int) -> Iterator[Trial]:
    """Round after round."""
    for seed in count(first_seed * 1_000_000):
        for kind in kinds or ROWS:
            yield Trial("results", kind, seed)
            if kind not in deviations.REFUSED:
                yield Trial("gradients", kind, seed)
        for name in () if kinds else checks.NETWORKS:
            yield Trial("network", name, seed)


def outcomes(kinds: tuple[str, ...], first_seed: int) -> Iterator[tuple[Trial, str | None]]:
    """Each trial with what `run` says of it; a new process wherever one dies."""
    spawn = multiprocessing.get_context("spawn")
    coming = trials(kinds, first_seed)
    while True:
        with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=TRIALS_PER_PROCESS) as pool:
            for trial in coming:
                try:
                    yield trial, pool.submit(run, trial).result()
                except BrokenProcessPool:
                    yield trial, "the process died"
                    break


@click.command()
@click.option("--minutes", type=float, required=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--kind", type=click.Choice(sorted(ROWS)), multiple=True, help="May be repeated; default: all.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path("fuzz"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def main(minutes: float, seed: int, kind: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Run graphs until the time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    start, done, kept = time.monotonic(), Counter[str](), dict[str, str]()
    for trial, difference in outcomes(kind, seed):
        done[trial.check] += 1
        if difference is not None:
            path = folder / f"{trial}.json"
            path.write_bytes(trial.make().graph.to_json())
            kept[str(path)] = difference
            click.echo(f"{path}\n{difference}\n", err=True)
        elapsed = time.monotonic() - start
        if done.total() % 50 == 0:
            click.echo(f"{elapsed / 60:6.1f} min  {done.total():>7,} graphs  {len(kept)} found", err=True)
        if elapsed > 60 * minutes:
            break
    summary = {"graphs": dict(done), "found": len(kept), "kept": kept}
    click.echo(json.dumps(summary) if as_json else f"{done.total():,} graphs, {len(kept)} unexplained differences")
    sys.exit(1 if kept else 0)


if __name__ == "__main__":
    main()
