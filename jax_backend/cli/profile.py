"""`burn-xla profile`: where the time of a recorded session goes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jax_backend.cli.text import size, table

if TYPE_CHECKING:
    from jax_backend.profiling import OpTime, Profile


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", default=None, help="cpu, gpu, tpu, or a number; default: the first there is.")
@click.option("--top", default=20, show_default=True, help="Kinds and operations to list, slowest first.")
@click.option("--alone/--no-alone", default=True, show_default=True, help="Measure each operation by itself as well.")
@click.option(
    "--trace",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a trace of jax's profiler there, for Perfetto (ui.perfetto.dev) and XProf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(file: Path, device: str | None, top: int, alone: bool, trace: Path | None, as_json: bool) -> None:
    """Run FILE and measure its programs and each operation, inside its program and by itself."""
    from jax_backend import devices

    devices.prepare(device or "")
    from ir.wire.capture import read_messages
    from jax_backend.cli.progress import progress
    from jax_backend.inspection import operations
    from jax_backend.profiling import profile

    chosen = devices.find_device(device) if device else None
    messages = list(read_messages(file))
    with progress(sum(1 for _ in operations(messages)), "operations") as tick:
        found = profile(file.name, messages, chosen, alone=alone, trace=trace, tick=tick)
    click.echo(msgspec.json.encode(as_object(found)).decode() if as_json else report(found, top))
    if trace is not None and not as_json:
        click.echo(f"\n{trace}: open the newest *.trace.json.gz in ui.perfetto.dev, or: xprof --logdir {trace}")


def report(found: "Profile", top: int) -> str:
    """The measurements as text."""
    whole = found.report
    programs = [
        (
            p.number,
            len(p.ops),
            p.runs,
            f"{p.compile_s:.2f}",
            ms(p.run_s / p.runs),
            rate(p.flops, p.run_s / p.runs),
            peak(p.memory),
        )
        for p in whole.programs
    ]
    kinds, slowest = found.kinds(), sorted(found.ops, key=lambda op: -op.inside_s * op.runs)
    total = sum(k.inside_s for k in kinds) or 1.0
    rows = [(k.kind, k.count, ms(k.inside_s), f"{k.inside_s / total:.1%}", ms(k.alone_s)) for k in kinds[:top]]
    places = [
        (f"{op.program}.{op.place}", op.kind, op.output, op.runs, ms(op.inside_s), ms(op.alone_s))
        for op in slowest[:top]
    ]
    ran = sum(p.run_s for p in whole.programs)
    lines = [
        f"{whole.operations} operations in {len(whole.runs)} runs of {len(whole.programs)} programs on {whole.device}, "
        f"{ran * 1e3:.1f} ms",
        "",
        table(("program", "ops", "runs", "compile s", "ms", "GFLOP/s", "memory"), programs),
        "",
        table(("kind", "count", "inside ms", "share", "alone ms"), rows),
        "",
        table(("op", "kind", "output", "runs", "inside ms", "alone ms"), places),
    ]
    return "\n".join(lines + [f"failed: {reason}" for reason in whole.failures])


def ms(seconds: float | None) -> str:
    """Milliseconds, to the microsecond."""
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def rate(flops: float, seconds: float) -> str:
    """Billions of operations per second."""
    return f"{flops / seconds / 1e9:.2f}" if seconds and flops > 0 else ""


def peak(memory: dict[str, int]) -> str:
    """Arguments, results and temporaries at once."""
    return size(memory["argument"] + memory["output"] + memory["temp"] - memory["alias"])


def as_object(found: "Profile") -> dict[str, Any]:
    """The measurements for JSON, in seconds and bytes."""
    whole = found.report
    programs = [
        {
            "program": p.number,
            "operations": len(p.ops),
            "runs": p.runs,
            "run_s": p.run_s,
            "compile_s": p.compile_s,
            "flops": p.flops,
            "memory": p.memory,
            "reason": p.reason,
        }
        for p in whole.programs
    ]
    return {
        "device": whole.device,
        "operations": whole.operations,
        "programs": programs,
        "kinds": found.kinds(),
        "ops": [op_object(op) for op in found.ops],
        "failures": whole.failures,
    }


def op_object(op: "OpTime") -> dict[str, Any]:
    """One operation for JSON."""
    return msgspec.structs.asdict(op)
