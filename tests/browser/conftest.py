"""A browser that tests drive: the Chromium of the system, with Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def chromium() -> Iterator[Any]:  # a Browser of Playwright, which need not be installed
    """Chromium without a window; skips the test where it or Playwright is missing."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("platform: there is no chromium; CI=true .ci/run installs it")
    playwright = pytest.importorskip("playwright.sync_api", reason="platform: there is no playwright, see .ci/run")
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox wants another user
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=as_root)
        yield browser
        browser.close()
