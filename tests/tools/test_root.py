"""The package's root: names that cost nothing until they are used."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version

import pytest

import toolweave
import toolweave.config
import toolweave.connect
from tests.programs import ran
from toolweave.protocol import server_features


def test_every_public_name_is_there_and_found_in_the_room_it_comes_from() -> None:
    for name in toolweave.__all__:
        assert getattr(toolweave, name) is not None
        assert name in dir(toolweave)


def test_the_version_is_the_distributions() -> None:
    assert toolweave.__version__ == version("toolweave")


@pytest.mark.parametrize("package", ["toolweave", "toolweave.tools", "toolweave.schema"])
def test_a_name_that_does_not_exist_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=r"'no_such_name'"):
        getattr(importlib.import_module(package), "no_such_name")  # noqa: B009  # the type checker refuses it


def test_a_name_is_looked_up_once() -> None:
    code = "import toolweave; toolweave.ToolSpec; print('ToolSpec' in vars(toolweave))"

    done = ran([sys.executable, "-c", code], check=True)

    assert done.stdout.strip() == "True"


@pytest.mark.requirement("R1")
def test_what_a_connection_takes_and_returns_can_be_named() -> None:
    for name in ("McpConfig", "McpStdioConfig", "McpHttpConfig"):
        assert name in toolweave.config.__all__
    features = (
        "Completion",
        "Prompt",
        "PromptArgument",
        "PromptMessage",
        "PromptResult",
        "Resource",
        "ResourceTemplate",
    )
    for name in features:  # at the top a prompt is what is sent
        assert name in toolweave.connect.__all__
        assert getattr(toolweave.connect, name) is getattr(server_features, name)
