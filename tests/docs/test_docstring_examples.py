"""The examples in docstrings of public names are Python, and the names that they call exist."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

import pytest

import toolweave

_BLOCK = re.compile(r"\n\n((?:    .*\n)+)")
_WITH_EXAMPLE = ("connect_mcp", "connect_mcp_servers", "load_config", "AgentRegistry", "Limits", "McpPool",
                 "ScriptedModel", "SqliteStore", "ToolRegistry")  # fmt: skip


@pytest.mark.parametrize("name", _WITH_EXAMPLE)
def test_an_example_is_python_that_uses_the_name(name: str) -> None:
    text = (inspect.getdoc(getattr(toolweave, name)) or "").partition("\nArgs:")[0] + "\n"
    blocks = [textwrap.dedent(block) for block in _BLOCK.findall(text)]
    called = {
        node.func.id
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }

    assert name in called
    assert called <= set(toolweave.__all__)
