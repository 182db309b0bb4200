"""`burn-xla serve`: the server of Burn's remote protocol."""

import asyncio
import math
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from jax_backend.cli.serve_log import Log

if TYPE_CHECKING:
    from jax_backend.program_store import ProgramStore
    from jax_backend.remote import Host
    from jax_backend.server import Options

REFRESH_S: Final = 0.5
GIB: Final = 2**30

_SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread may keep the interpreter from the others. A trace is seconds of Python: with the default of 5 ms,
each frame of another session would wait that long."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 lets others in.")
@click.option("--port", default=3000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--devices", default=None, help="cpu, gpu, tpu, cpu:N, or numbers as 0,2; default: all there are.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Clients have to show its content (Burn: with_credential).",
)
@click.option("--precision", type=click.Choice(["highest", "default"]), default="highest", show_default=True)
@click.option("--verify", type=click.Choice(["off", "cheap", "full"]), default="off", show_default=True)
@click.option("--capture", type=click.Path(file_okay=False, path_type=Path), help="Record each session there (.bxs).")
@click.option("--max-sessions", default=64, show_default=True, type=click.IntRange(1))
@click.option("--max-message-bytes", default=GIB, show_default=True, type=click.IntRange(1024, GIB))
@click.option("--max-tensor-bytes", default=GIB, show_default=True, type=click.IntRange(1), help="Of an upload.")
@click.option("--max-live-bytes", default=None, type=click.IntRange(1), help="Of one session; default: no limit.")
@click.option("--max-tensors", default=1_000_000, show_default=True, type=click.IntRange(1), help="Of one session.")
@click.option("--max-graphs", default=100_000, show_default=True, type=click.IntRange(1), help="Of one session.")
@click.option("--handshake-timeout", default=60.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option(
    "--transfer-timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds that a session waits for a tensor of another one, or for others in an all-reduce.",
)
@click.option("--grace", default=30.0, show_default=True, help="Seconds that sessions get to end at SIGTERM.")
@click.option("--peer", multiple=True, help="Server to fetch tensors from, HOST or HOST:PORT; * is any. Repeatable.")
@click.option("--origin", multiple=True, help="Web page that may connect, as https://host. Repeatable.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write compiled programs on disk.")
@click.option("--json-log", is_flag=True, help="One JSON object per event, on stderr.")
def command(**given: Any) -> None:
    """Serve Burn programs: `RemoteHost::websocket("ws://HOST:PORT")` is then this machine.

    Each device is one target (its index). `/healthz` and `/metrics` answer on the same port.
    """
    from jax_backend import devices, disk_cache

    devices.prepare(given["devices"] or "")
    devices.share_memory()
    store = None if given["no_cache"] else disk_cache.enable()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    log = Log(as_json=given["json_log"])
    try:
        all_ended = asyncio.run(serve(host(given, log, store), options(given), log, given["grace"]))
    finally:
        log.close()
    if not all_ended:
        # A thread is inside XLA and cannot be interrupted; leaving the interpreter under it would crash.
        os._exit(1)


def host(given: dict[str, Any], log: Log, store: "ProgramStore | None") -> "Host":
    """Devices, programs, token and limits."""
    import jax

    from ir.verify import Level
    from jax_backend.cache import ProgramCache
    from jax_backend.devices import find_devices
    from jax_backend.remote import Host, Limits

    found = find_devices(given["devices"]) if given["devices"] else jax.local_devices()
    token_file: Path | None = given["token_file"]
    token = token_file.read_bytes().strip() if token_file else b""
    if token_file and not token:
        raise click.UsageError(f"--token-file: expected a token in {token_file}, got an empty file")
    limits = Limits(
        given["max_tensor_bytes"], given["max_live_bytes"] or math.inf, given["max_tensors"], given["max_graphs"]
    )
    cache = ProgramCache(
        precision=jax.lax.Precision[given["precision"].upper()],
        store=store,
        on_compile=lambda event, line: log(event, None, line, {}),
    )
    return Host(found, cache, token, limits, Level(given["verify"]), given["transfer_timeout"])


def options(given: dict[str, Any]) -> "Options":
    """Where to listen, and whom to admit."""
    from jax_backend.server import Options

    return Options(
        host=given["host"],
        port=given["port"],
        max_message_bytes=given["max_message_bytes"],
        max_sessions=given["max_sessions"],
        handshake_s=given["handshake_timeout"],
        transfer_s=given["transfer_timeout"],
        peers=given["peer"],
        origins=given["origin"],
        capture=given["capture"],
    )


async def serve(host: "Host", options: "Options", log: Log, grace_s: float) -> bool:
    """Serve until SIGTERM or Ctrl-C; a second one does not wait. Returns whether every session's thread ended."""
    from jax_backend.peers import LOOPBACK
    from jax_backend.server import Server

    server = Server(host, options, log)
    port = await server.start()
    devices = [str(device) for device in host.devices]
    url = f"ws://{options.host}:{port}"
    log("listening", None, f"{url} on {', '.join(devices)}", {"url": url, "devices": devices})
    if options.host not in LOOPBACK and not host.token:
        log("warning", None, f"whoever reaches {options.host}:{port} may use it: --token-file asks for a token", {})
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: hurry.set() if stop.is_set() else stop.set())
    while not stop.is_set():
        log.show(server.snapshot())
        await _either(stop, timeout_s=REFRESH_S)
    log("stopping", None, f"sessions get {grace_s:g} s to end", {})
    stopping = asyncio.create_task(server.stop(grace_s))
    hurrying = asyncio.create_task(hurry.wait())
    await asyncio.wait((stopping, hurrying), return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    all_ended = stopping.done() and stopping.result()
    log("stopped", None, "all sessions ended" if all_ended else "some sessions were cut off", {})
    return all_ended


async def _either(event: asyncio.Event, *, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return
