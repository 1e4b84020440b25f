"""Habits that a linter does not know, held by a test instead of a page of rules."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import modules

pytestmark = pytest.mark.slow

BROAD = {"Exception", "BaseException"}


def names_caught(handler: ast.ExceptHandler) -> set[str]:
    """Return the names a handler catches; a bare `except:` catches BaseException."""
    match handler.type:
        case None:
            return {"BaseException"}
        case ast.Tuple(elts=parts):
            return {ast.unparse(part) for part in parts}
        case one:
            return {ast.unparse(one)}


def test_a_broad_except_reraises_or_says_which_boundary_it_is() -> None:
    silent: list[str] = []
    for module in modules():
        lines = module.text.splitlines()
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler) or BROAD.isdisjoint(names_caught(node)):
                continue
            reraises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            beginning = "\n".join(lines[node.lineno - 1 : node.lineno + 1]).lower()
            if not reraises and "# boundary" not in beginning:
                silent.append(f"{module.name}:{node.lineno}")

    assert not silent, "write `# boundary: WHY` on the except line, or below it: " + ", ".join(silent)


def test_every_exception_class_lives_in_the_one_error_tree() -> None:
    # a private signal never leaves its room, the command's exit is not an error of the library, and those who send by
    # the HTTP room turn its errors into ones of the tree, which say for whom the request was
    ends_in_error = re.compile(r"(Error|Exception)$")
    strays = [
        f"{module.name}:{node.lineno} {node.name}"
        for module in modules()
        if module.room not in {"errors", "cli", "http"}
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and ends_in_error.search(node.name) and not node.name.startswith("_")
    ]

    assert not strays


def test_logging_goes_through_the_one_named_logger_of_the_package() -> None:
    strays = [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"logging.getLogger", "getLogger"}
        if not node.args or not re.match(r"""["']toolweave(\.|["'])|__name__$""", ast.unparse(node.args[0]))
        # whose noise is turned off, where the user has not set it
        if (module.name, ast.unparse(node)) != ("toolweave.jobs._docket_worker", "logging.getLogger('docket')")
    ]

    assert not strays


OWNERS = {
    "toolweave.connect._supervisor": "create_task",  # the life of one connection
    "toolweave.agent._lifespan": "create_task",  # that of an agent's tools and runs
    "toolweave.openapi._asgi": "create_task",  # that of an ASGI application in this process
    "toolweave.serve._http.connection": "create_task",  # requests over HTTP, which the server cancels and waits for
    "toolweave.serve._duplex.conversation": "create_task",  # requests over a pipe, in a task group of asyncio
}
"""The files that ARCHITECTURE's first rule names: each makes one owner task, or its tasks in a group that it waits for,
and no other file makes one."""


def test_only_owner_tasks_are_created_outside_of_the_task_groups_of_anyio() -> None:
    makers = {
        module.name: name
        for module in modules()
        if not module.name.startswith("toolweave.testing.servers")  # independent programs of the standard library
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        if (name := ast.unparse(node.func).rpartition(".")[2]) in {"create_task", "ensure_future", "TaskGroup"}
    }

    assert makers == OWNERS


def test_json_is_decoded_in_one_module_only() -> None:
    strays = [
        module.name
        for module in modules()
        if module.name != "toolweave._json"
        and any(call in module.text for call in ("msgspec.json.decode", "msgspec.json.Decoder"))
    ]

    assert not strays, "use `decode_json` or `JsonDecoder` of `toolweave._json`"


def test_the_default_of_an_object_is_made_by_dict_itself() -> None:
    # an alias such as `dict[str, Any]` also makes dicts, in seven times the time, for each of the values of a call
    aliases = {"Json", "dict[str, Any]"}
    slow = [
        f"{module.name}:{node.value.lineno}"
        for module in modules()
        if module.room == "tools" or module.name == "toolweave.protocol.content"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.keyword) and node.arg == "default_factory" and ast.unparse(node.value) in aliases
    ]

    assert not slow, "write `default_factory=new_object`: " + ", ".join(slow)
