"""`burn-xla shrink`: a failing session, cut to the smallest that still fails."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from jax_backend.cli.faults import fault_object, fault_text, found, sides, smallest

if TYPE_CHECKING:
    from jax_backend.differences import Fault
    from jax_backend.faults import Search
    from jax_backend.recording import Recording
    from jax_backend.sides import Side


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--left", default="eager", show_default=True, help="How FILE runs: as for burn-xla diff.")
@click.option("--right", default="recorded", show_default=True, help="What its outputs are held against.")
@click.option(
    "--fails",
    type=click.Choice(["error", "nan", "difference"]),
    help="What failing is; default: an operation that raises, else one that differs, else one that makes a NaN.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Default: FILE.small.bxs, here.")
@click.option("--seconds", default=60.0, show_default=True, help="Time after which the best so far is written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    file: Path, left: str, right: str, fails: str | None, out: Path | None, seconds: float, as_json: bool
) -> None:
    """Cut FILE to the smallest session that still fails, and write it.

    Operations become data where they may, and elements zero. Exit 2 where nothing fails.
    """
    mine, theirs = sides(left, right)
    assert theirs is not None
    from jax_backend.recording import Recording

    recording, target = Recording.load(file), out or Path(f"{file.stem}.small.bxs")
    search, fault = first_fault(recording, mine, theirs, fails)
    line = smallest(search, recording, fault, seconds, target)
    if as_json:
        extra = {"file": str(target), "operations_before": len(recording.ops)}
        click.echo(msgspec.json.encode(fault_object(fault, left, right, extra)).decode())
    else:
        click.echo(fault_text(file, fault, left, right if fault.comparison else None))
        click.echo(f"{line}, from {len(recording.ops)}")


def first_fault(recording: "Recording", left: "Side", right: "Side", fails: str | None) -> "tuple[Search, Fault]":
    """The first search that finds something.

    Raises:
        IrError: none does.
    """
    from ir.errors import IrError
    from jax_backend.faults import Differing, Failing, NonFinite

    searches: dict[str, Search] = {
        "error": Failing(left),
        "difference": Differing(left, right),
        "nan": NonFinite(left),
    }
    for name, search in searches.items():
        if fails in (None, name) and (fault := found(search, recording)):
            return search, fault
    raise IrError(f"nothing fails: {len(recording.ops)} operations, {left.name} against {right.name}")
