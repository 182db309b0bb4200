"""A real browser, without a window and without a network."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """The browser that `BURN_XLA_BROWSER` names, or one on the path, or playwright's own.

    For one test: playwright keeps an event loop running in its thread, where no other can run meanwhile.
    """
    found = os.environ.get("BURN_XLA_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        # Root has no user namespace for the sandbox; the pages are ours.
        started = playwright.chromium.launch(executable_path=found, chromium_sandbox=False)
        yield started
        started.close()
