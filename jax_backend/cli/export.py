"""`burn-xla export`: a recorded program for a process that has jax alone."""

from pathlib import Path

import click
import msgspec

from jax_backend.cli.text import size, table


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--segment", type=int, default=None, help="Number of the program, from 0; default: list them.")
@click.option("--input", "inputs", multiple=True, help="An input that stays an argument; others keep what they held.")
@click.option("--platform", "platforms", multiple=True, help="cpu, cuda, tpu; default: all three.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    file: Path, out: Path, segment: int | None, inputs: tuple[str, ...], platforms: tuple[str, ...], as_json: bool
) -> None:
    """Write a program of FILE to OUT: a name that ends in .py gets Python source, any other a jax.export file.

    Either needs jax alone to run. Without --segment the programs that there are get listed.
    """
    from jax_backend.function import PLATFORMS
    from jax_backend.recording import Recording

    recording = Recording.load(file)
    spans = recording.spans()
    if segment is None:
        rows = [(n, s.program, f"{s.start} to {s.stop}", s.reason) for n, s in enumerate(spans)]
        click.echo(table(("segment", "program", "operations", "ends by"), rows))
        raise click.UsageError(f"expected --segment, one of the {len(spans)} above")
    if not -len(spans) <= segment < len(spans):
        raise click.UsageError(f"--segment: expected 0 to {len(spans) - 1}, got {segment}")
    program = recording.program(spans[segment])
    if out.suffix == ".py":
        out.write_text(program.to_python(), encoding="utf-8")
    else:
        program.export(out, platforms or PLATFORMS, keep=inputs)
    takes = [str(v) for v in program.inputs if out.suffix == ".py" or v.name in inputs]
    gives, num_bytes = list(map(str, program.outputs)), out.stat().st_size
    if as_json:
        known = {"file": str(out), "operations": len(program.ops), "inputs": takes, "outputs": gives}
        click.echo(msgspec.json.encode({**known, "bytes": num_bytes}).decode())
    else:
        click.echo(f"{out}: {len(program.ops)} operations, {size(num_bytes)}")
        click.echo(f"takes {', '.join(takes) or 'nothing'}\ngives {', '.join(gives)}")
