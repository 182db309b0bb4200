"""`burn-xla demo`: what `jax_backend.demo` shows."""

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Hand over to the demo, which has its own options."""
    from jax_backend import demo

    raise SystemExit(demo.main(arguments))
