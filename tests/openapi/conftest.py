"""An API on the loopback, made from a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.openapi.mock_api import MockApi, serving


@pytest.fixture
def api() -> Iterator[Callable[[dict[str, Any]], tuple[MockApi, str]]]:
    """Serves documents while the test runs."""
    with ExitStack() as stack:

        def serve(document: dict[str, Any]) -> tuple[MockApi, str]:
            made = MockApi(document)
            return made, stack.enter_context(serving(made))

        yield serve
