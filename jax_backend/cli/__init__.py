"""The command `burn-xla`. Each command is a module, imported when it is called, so that `--help` loads nothing else.

Exit status: 0 done; 1 done, with differences or failures; 2 not done (wrong usage, file, or device).
"""

from importlib import import_module
from typing import Final, NamedTuple

import click

from jax_backend.cli.text import wrapped


class Entry(NamedTuple):
    """A command: where its click command is, and its line in the help."""

    module: str
    summary: str


COMMANDS: Final = {
    "run": Entry("jax_backend.cli.run", "Run a recorded session and print what it reads."),
    "serve": Entry("jax_backend.cli.serve", "Serve Burn programs whose device is this machine."),
    "launch": Entry("jax_backend.cli.launch", "Run a command in several processes that work together."),
    "inspect": Entry("jax_backend.cli.inspect", "Show what a recorded session holds, or draw it."),
    "diff": Entry("jax_backend.cli.diff", "Find the first operation that goes wrong."),
    "shrink": Entry("jax_backend.cli.shrink", "Cut a failing session to the smallest that fails."),
    "profile": Entry("jax_backend.cli.profile", "Measure the programs of a session and their operations."),
    "export": Entry("jax_backend.cli.export", "Write a program for a process that has jax alone."),
    "coverage": Entry("jax_backend.cli.coverage", "Count the operations that run and that are tested."),
    "doctor": Entry("jax_backend.cli.doctor", "Check this installation and say what mends it."),
    "demo": Entry("jax_backend.cli.demo", "Learn handwritten digits; search sentences by meaning."),
}
"""Every command, in the order of the help; each module has a click command named `command`."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        entry = COMMANDS.get(cmd_name)
        return import_module(entry.module).command if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="burn-xla")
def cli() -> None:
    """Run recorded tensor programs of Burn on CPU, GPU and TPU through XLA."""


def main() -> None:
    """Entry point."""
    with wrapped():
        cli(prog_name="burn-xla")
