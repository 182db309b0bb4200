"""The crate itself, one process for each module of tests."""

from collections.abc import Iterator

import pytest

from tests.meganeura.referee import Referee


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    """Meganeura 0.2, with its missing barriers put in."""
    with Referee() as referee:
        yield referee
