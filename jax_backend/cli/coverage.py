"""`burn-xla coverage`: what runs, and what is tested."""

import click
import msgspec

from jax_backend.cli.text import table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--missing", is_flag=True, help="Name the forms that do not run or are not tested.")
def command(as_json: bool, missing: bool) -> None:
    """Count the forms of each IR: all, those that run, those tested against an independent reference."""
    from jax_backend.coverage import coverage, totals

    burn = coverage()
    whole = totals(burn)
    if as_json:
        families = {family: burn.count(family)._asdict() for family in burn.families}
        click.echo(msgspec.json.encode({**whole, "families": {"burn": families}}).decode())
        return
    rows = [(family, *burn.count(family)) for family in burn.families]
    rows += [(name, *count.values()) for name, count in whole.items()]
    click.echo(table(("family", "forms", "run", "tested"), rows))
    if missing:
        for family in burn.families:
            for form in burn.missing(family):
                click.echo(f"{form}: {'not tested' if form in burn.lowered else 'does not run'}")
