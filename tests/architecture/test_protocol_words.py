"""The words that the protocol reserves are spelled in one room: revisions, methods, error codes, keys of `_meta`.

So are the members of requests to a client, of results that ask for input, and of tasks, and messages of JSON-RPC.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import Module, modules
from toolweave.protocol import codes, methods, versions

REVISIONS = {*versions.HANDSHAKE_VERSIONS, *versions.MODERN_VERSIONS}
KEY = "io.modelcontextprotocol/"
VERSION_MEMBER = '"jsonrpc"'
METHODS = {value for name, value in vars(methods).items() if name in methods.__all__}
CODES = {value for name, value in vars(codes).items() if name in codes.__all__}
MEMBERS = {
    *("requestedSchema", "elicitationId", "elicitations"),
    *("maxTokens", "systemPrompt", "stopSequences", "toolChoice", "stopReason"),
    *("input_required", "inputRequests", "inputResponses", "requestState"),
    *("taskId", "statusMessage", "lastUpdatedAt", "pollInterval", "pollIntervalMs", "taskSupport"),
    *("ref/prompt", "ref/resource", "hasMore"),
}
WORDS = METHODS | REVISIONS | MEMBERS
NEITHER = {
    "toolweave.testing.servers": "servers that misbehave on purpose share no line with the product",
    "toolweave.protocol": "the one place",
}


def is_held(module: Module) -> bool:
    """Whether a module has to take the protocol's words from the room."""
    return not any(module.name == name or module.name.startswith(f"{name}.") for name in NEITHER)


def documented(tree: ast.Module) -> set[int]:
    """Return the ids of the nodes that nothing reads: docstrings, and the values of literal types."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            found.add(id(node.value))
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            found.update(id(inner) for inner in ast.walk(node))
    return found


def spelled(module: Module) -> Iterator[str]:
    """Yield each word of the protocol that a module writes down itself."""
    left_out = documented(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and id(node) not in left_out and is_word(node.value):
            yield f"{module.name}:{node.lineno} {node.value!r}"
        elif isinstance(node, ast.Dict) and any(map(is_version_of_json_rpc, node.keys, node.values)):
            yield f"{module.name}:{node.lineno} an envelope of JSON-RPC"


def is_word(value: object) -> bool:
    """Whether a constant is a text that the protocol reserves."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return isinstance(text, str) and (
        text in METHODS or text in REVISIONS or text in MEMBERS or KEY in text or '"jsonrpc"' in text
    )


def is_version_of_json_rpc(key: ast.expr | None, value: ast.expr) -> bool:
    """Whether a member of a dictionary is the one that only messages of JSON-RPC have."""
    return isinstance(key, ast.Constant) and key.value == "jsonrpc" and ast.unparse(value) == "'2.0'"


def negatives(module: Module) -> Iterator[str]:
    """Yield each error code that a module writes down itself: a negative number is an operation in Python."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            if isinstance(value, int) and -value in CODES:
                yield f"{module.name}:{node.lineno} {-value}"


@pytest.mark.slow
def test_no_other_room_spells_a_method_a_revision_a_key_a_member_or_an_error_code() -> None:
    strays = [word for module in modules() if is_held(module) for word in (*spelled(module), *negatives(module))]

    assert not strays, "take them from toolweave.protocol: " + ", ".join(strays)


@pytest.mark.parametrize(
    "source",
    [
        *('x = "tools/call"', 'x = b"2026-07-28"', 'x = f"io.modelcontextprotocol/{y}"', "x = -32601", 'x = ["ping"]'),
        'x = {"requestedSchema": y}',
        'x = {"jsonrpc": "2.0", "id": y}',
        """x = b'{"jsonrpc":"2.0","id":%d}' % y""",
    ],
)
def test_a_spelled_word_is_found(source: str) -> None:
    module = Module("toolweave.serve.x", modules()[0].path, source, ast.parse(source))

    assert [*spelled(module), *negatives(module)]


def test_the_modern_revision_is_newer_than_those_with_a_handshake() -> None:
    every = (*versions.HANDSHAKE_VERSIONS, *versions.MODERN_VERSIONS)

    assert list(every) == sorted(set(every))
    assert {versions.BATCHING_VERSION, versions.TASKS_VERSION} <= set(versions.HANDSHAKE_VERSIONS)
