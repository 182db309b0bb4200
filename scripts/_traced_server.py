"""`python scripts/_traced_server.py FOLDER serve ...`: `burn-xla` with jax's profiler.

SIGUSR1 starts it, a second one ends it and writes to the folder.
"""

import signal
import sys
import threading

import jax

from jax_backend.cli import main


def toggle(folder: str) -> None:
    """Start or end, in turn."""
    state = threading.Event()

    def act() -> None:
        if state.is_set():
            jax.profiler.stop_trace()
        else:
            state.set()
            jax.profiler.start_trace(folder)

    # The profiler takes seconds to write; the event loop, whose thread this is, has other things to do.
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=act).start())


if __name__ == "__main__":
    toggle(sys.argv.pop(1))
    main()
