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


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server of four devices with small limits and short waits."""
    host = Host(jax.devices(), PROGRAMS, limits=Limits(SMALL // 2, live_bytes=8 * SMALL), collective_s=6.0)
    with running(host, max_message_bytes=SMALL, handshake_s=2.0, transfer_s=4.0) as server:
        yield server
