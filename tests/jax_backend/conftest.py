"""What several modules of these tests share."""

from collections.abc import Iterator

import jax
import pytest

from jax_backend.remote import Host, Limits
from tests.remote_client import (
    PROGRAMS,
    SMALL,
    RunningServer,
    running,
)


@pytest.fixture(scope="module", params=[False, True], ids=["", "launch_ahead"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server of four devices with small limits and short waits; it calls programs as on a CPU, or as on a GPU."""
    limits = Limits(SMALL // 2, live_bytes=8 * SMALL)
    host = Host(jax.devices(), PROGRAMS, limits=limits, collective_s=6.0, launch_ahead=request.param)
    with running(host, max_message_bytes=SMALL, handshake_s=2.0, transfer_s=4.0) as server:
        yield server
