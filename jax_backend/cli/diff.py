"""`burn-xla diff`: the first operation that goes wrong."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from jax_backend.cli.faults import fault_object, fault_text, found, sides, smallest, written
from jax_backend.cli.progress import progress

if TYPE_CHECKING:
    from jax_backend.check import Tolerance
    from jax_backend.differences import Fault
    from jax_backend.recording import Recording
    from jax_backend.sides import Side

HELP = """Run FILE twice, operation by operation, and find the first whose output differs; exit 1 if there is one.

Or run FILE and OTHER, two sessions of the same operations.

\b
A side is
  eager            each operation by itself
  compiled         the programs that a session is cut into
  f64              each operation by itself, all floats in float64
  recorded         the answers in the file
  ws://host:port   a running server: Burn's own, or burn-xla serve
and cpu, gpu, tpu or the number of a device may stand in front: gpu+compiled.

What leads to the difference is cut to a small session with the answer that the right side gives.
"""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(help=HELP)
@click.argument("file", type=FILE)
@click.argument("other", type=FILE, required=False)
@click.option("--left", default="eager", show_default=True, help="How FILE runs: a side, as above.")
@click.option("--right", default=None, help="What it is held against; default: compiled, and as FILE for OTHER.")
@click.option("--nan", is_flag=True, help="Find the first operation that makes a NaN or an infinity instead.")
@click.option("--skip-infinities", is_flag=True, help="With --nan: a NaN alone counts.")
@click.option("--by-itself", is_flag=True, help="Pass over operations that agree on the inputs of the left side.")
@click.option("--rtol", type=float, default=None, help="Relative tolerance of floats; default: by dtype.")
@click.option("--atol", type=float, default=None, help="Absolute tolerance of floats; default: by dtype.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Default: FILE.fault.bxs, here.")
@click.option("--seconds", default=30.0, show_default=True, help="For making what is found small.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    file: Path,
    other: Path | None,
    left: str,
    right: str | None,
    nan: bool,
    skip_infinities: bool,
    by_itself: bool,
    rtol: float | None,
    atol: float | None,
    out: Path | None,
    seconds: float,
    as_json: bool,
) -> None:
    """See `HELP`."""
    if nan and (other or right):
        raise click.UsageError("--nan looks at one side: leave out OTHER and --right")
    mine, theirs = sides(left, None if nan else right or (left if other else "compiled"))
    from jax_backend.check import Tolerance
    from jax_backend.faults import Differing, NonFinite
    from jax_backend.recording import Recording

    tolerance = None if rtol is None and atol is None else Tolerance(rtol or 0.0, atol or 0.0)
    recording, target = Recording.load(file), out or Path(f"{file.stem}.fault.bxs")
    name = theirs.name if theirs else None
    line = ""
    if other is not None and theirs is not None:
        fault = between((recording, mine), (Recording.load(other), theirs), tolerance, only_by_itself=by_itself)
        name = str(other)
        line = single(recording, fault, target) if fault else ""
    else:
        search = (
            NonFinite(mine, not skip_infinities) if theirs is None else Differing(mine, theirs, tolerance, by_itself)
        )
        fault = found(search, recording)
        line = smallest(search, recording, fault, seconds, target) if fault else ""
    if as_json:
        extra = {"file": str(target)} if fault else {}
        click.echo(msgspec.json.encode(fault_object(fault, mine.name, name, extra)).decode())
    elif fault is None:
        what = f"{mine.name} against {name}" if name else f"{mine.name}, NaN and infinities"
        click.echo(f"{file}: {what}: {len(recording.ops)} operations, nothing found")
    else:
        click.echo(fault_text(file, fault, mine.name, name))
        click.echo(f"reproduce with: {again(target, mine.name, name, nan, other)}\n  {line}")
    if fault is not None:
        sys.exit(1)


def again(target: Path, left: str, right: str | None, nan: bool, other: Path | None) -> str:
    """The command that finds the fault in the small session."""
    if nan:
        return f"burn-xla diff {target} --left {left} --nan"
    if other is not None or right == "recorded":
        return f"burn-xla diff {target} --left {left} --right recorded"
    return f"burn-xla diff {target} --left {left} --right {right}"


def between(
    left: "tuple[Recording, Side]",
    right: "tuple[Recording, Side]",
    tolerance: "Tolerance | None",
    *,
    only_by_itself: bool,
) -> "Fault | None":
    """The first operation that differs between two sessions."""
    from jax_backend.differences import first_difference

    with progress(len(left[0].ops), "operations") as tick:
        return first_difference(left, right, tolerance, tick, only_by_itself=only_by_itself)


def single(recording: "Recording", fault: "Fault", out: Path) -> str:
    """Write the operation at fault alone, on its inputs of the left side, with the right side's answer."""
    from ir.wire.messages import TensorResult
    from jax_backend import host
    from jax_backend.differences import operation_alone

    small = operation_alone(recording, fault)
    assert fault.right is not None
    answer = TensorResult(Ok=host.from_numpy(fault.right, fault.tensor.dtype))
    small.reads[:] = [read._replace(answer=answer) for read in small.reads]
    small.save(out)
    return written(small, out)
