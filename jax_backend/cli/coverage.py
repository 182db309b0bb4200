"""`burn-xla coverage`: what runs, and what is tested."""

import click
import msgspec

from jax_backend.cli.text import table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--missing", is_flag=True, help="Name the forms that do not run or are not tested.")
def command(as_json: bool, missing: bool) -> None:
    """Count the forms of each IR: all, those that run, those tested against an independent reference."""
    from jax_backend.coverage import both

    found = both()
    if as_json:
        families = {ir: {f: of.count(f)._asdict() for f in of.families} for ir, of in found.items()}
        totals = {ir: of.count()._asdict() for ir, of in found.items()}
        click.echo(msgspec.json.encode({**totals, "families": families}).decode())
        return
    rows = [(f"{ir} {family}", *of.count(family)) for ir, of in found.items() for family in of.families]
    rows += [(ir, *of.count()) for ir, of in found.items()]
    click.echo(table(("family", "forms", "run", "tested"), rows))
    if missing:
        for of in found.values():
            for form in (form for family in of.families for form in of.missing(family)):
                click.echo(f"{form}: {'not tested' if form in of.lowered else 'does not run'}")
