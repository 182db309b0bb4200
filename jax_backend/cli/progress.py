"""What the commands show on stderr while they work, if that is a terminal."""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

    from jax_backend.differences import Tick

T = TypeVar("T")


@contextmanager
def bar(what: str, *details: str) -> "Generator[Progress | None]":
    """A bar that counts `what`, with columns of rich's text in `details`; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), *map(TextColumn, details), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown


@contextmanager
def progress(total: int, what: str) -> "Generator[Tick]":
    """A bar, moved by the number of `what` that are done."""
    with bar(what) as shown:
        if shown is None:
            yield lambda done: None
        else:
            task = shown.add_task("", total=total)
            yield lambda done: shown.update(task, completed=done)


@contextmanager
def tracked(total: int, what: str) -> Generator[Callable[[Iterable[T]], Iterator[T]]]:
    """A way to iterate over `what` that moves a bar."""
    with bar(what) as shown:
        yield iter if shown is None else lambda items: iter(shown.track(items, total=total))


@contextmanager
def waiting(what: str) -> Generator[None]:
    """Say what takes so long."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
