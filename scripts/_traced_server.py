"""`python scripts/_traced_server.py FOLDER serve ...`: `burn-xla` with jax's profiler.

SIGUSR1 starts it and says `tracing`; the next one ends it, writes to the folder and says `traced`; and so on.
"""

import signal
import sys
import threading

import jax

from jax_backend.cli import main


def toggle(folder: str) -> None:
    """Start or end, in turn."""
    is_tracing = False
    lock = threading.Lock()

    def act() -> None:
        nonlocal is_tracing
        with lock:
            if is_tracing:
                jax.profiler.stop_trace()
            else:
                jax.profiler.start_trace(folder)
            is_tracing = not is_tracing
        print("tracing" if is_tracing else "traced", file=sys.stderr, flush=True)

    # The profiler takes seconds to write; the event loop, whose thread this is, has other things to do.
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=act).start())


if __name__ == "__main__":
    toggle(sys.argv.pop(1))
    main()
