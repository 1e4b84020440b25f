"""A registry that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.install.served import ServedRegistry, serve_registry


@pytest.fixture(scope="module")
def running_registry() -> Iterator[ServedRegistry]:
    """A registry on the loopback."""
    with serve_registry() as registry:
        yield registry


@pytest.fixture
def registry(running_registry: ServedRegistry) -> ServedRegistry:
    """The registry, with what it has by itself."""
    running_registry.reset()
    return running_registry
