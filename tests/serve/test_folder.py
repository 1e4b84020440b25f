"""A folder as a server: its files are tools, prompts, resources and skills; one with a fault costs itself alone."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.talking import Talk, talking
from toolweave import CallContext, create_mcp_server, tool
from toolweave.errors import RequestError
from toolweave.serve import McpServer, ServedFolder, folder, prompt, resource

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
TOOL = '''
from toolweave import tool

@tool
def {name}(text: str) -> str:
    """Say it in one way."""
    return f"{name} {{text}}"
'''
PROMPT = """---
description: Ask for a review.
arguments:
  - name: topic
    description: What it is about
  - name: tone
    default: friendly
---

Review {{topic}} in a {{ tone }} tone; {{topic}} it is. \\{{topic}} stays.
"""
SKILL = "---\nname: tidy\ndescription: Tidy up.\n---\nRemove what is done.\n"
MARK = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


def write(root: Path, **files: str | bytes) -> Path:
    """Write files below a folder: `a__b` is `a/b`."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a part of every kind, beside a secret."""
    (tmp_path / "secret.md").write_text("hunter2")
    return write(
        tmp_path / "notes",
        **{
            "echo.py": TOOL.format(name="echo"),
            "tools__loud.py": TOOL.format(name="loud"),
            "prompts__review.md": PROMPT,
            "resources__guide.md": "# Guide",
            "resources__img__logo.png": PNG,
            "skills__tidy__SKILL.md": SKILL,
        },
    )


def make(root: Path | ServedFolder, **options: Any) -> McpServer:
    return create_mcp_server("notes", folder=root, **options)


async def names(talk: Talk, method: str) -> list[str]:
    answer = await talk.ask(method)
    member = next(one for one in ("tools", "prompts", "resources", "skills") if one in answer)
    return [one["uri" if member in ("resources", "skills") else "name"] for one in answer[member]]


async def refused(talk: Talk, method: str, **params: Any) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        await talk.ask(method, params)
    return refusal.value


# what the files become


@pytest.mark.slow
@EACH_CARRIER
async def test_the_files_of_a_folder_are_the_parts_of_a_server(root: Path, carrier: str, era: str) -> None:
    async with connected(make(root), carrier, era) as client:
        assert (await client.list_tools()).names == ("echo", "loud")
        assert (await client.call_tool("loud", {"text": "hello"})).text == "loud hello"
        (review,) = await client.list_prompts()
        assert (review.name, review.description) == ("review", "Ask for a review.")
        assert [(one.name, one.description, one.required) for one in review.arguments] == [
            ("topic", "What it is about", True),
            ("tone", "", False),
        ]
        (message,) = (await client.get_prompt("review", {"topic": "plants"})).messages
        assert message.content.render() == "Review plants in a friendly tone; plants it is. {{topic}} stays."
        listed = {one.uri: one for one in await client.list_resources()}
        assert set(listed) == {"resource://guide.md", "resource://img/logo.png", "skill://tidy/SKILL.md"}
        assert (listed["resource://guide.md"].mime_type, listed["resource://guide.md"].size) == ("text/markdown", 7)
        (guide,) = await client.read_resource("resource://guide.md")
        (logo,) = await client.read_resource("resource://img/logo.png")
        assert (guide.text, guide.mime_type) == ("# Guide", "text/markdown")
        assert (logo.text, logo.decode(), logo.mime_type) == (None, PNG, "image/png")
        (tidy,) = await client.list_skills()
        assert (await client.load_skill(tidy)).instructions == "Remove what is done.\n"


async def test_what_python_files_define_is_offered_once_wherever_they_are(root: Path) -> None:
    code = '''
from toolweave.serve import prompt, resource, skill
from ...echo import echo

again = echo

@prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Say hello to {name}."

@resource("notes://{number}", name="note")
def note(number: int) -> str:
    return f"note {number}"

@skill
def count_things() -> str:
    """Count things."""
    return "One, two."
'''
    write(root, **{"prompts__code__all.py": code, "resources__all.py": TOOL.format(name="third")})
    async with talking(make(root)) as talk:
        assert await names(talk, "tools/list") == ["echo", "loud", "third"]
        assert await names(talk, "prompts/list") == ["greet", "review"]
        assert set(await names(talk, "skills/list")) == {"skill://count-things/SKILL.md", "skill://tidy/SKILL.md"}
        read = await talk.ask("resources/read", {"uri": "notes://3"})
        said = await talk.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
    assert read["contents"][0]["text"] == "note 3"
    assert said["messages"][0]["content"]["text"] == "Say hello to Ada."


@pytest.mark.slow
async def test_a_folder_joins_what_the_server_is_given_otherwise(root: Path) -> None:
    @tool
    def own(ctx: CallContext) -> str:
        """Say what the state is."""
        return str(ctx.state["word"])

    @prompt
    def mine() -> str:
        return "mine"

    @resource("own://one")
    def one() -> str:
        return "one"

    code = "@tool\ndef state(ctx: CallContext) -> str:\n    return ctx.state['word']\n"
    write(root, **{"tools__state.py": f"from toolweave import CallContext, tool\n\n{code}"})
    for tools in (own, [own]):
        server = make(root, tools=tools, prompts=[mine], resources=[one], state={"word": "sky"}, exclude=["echo"])
        async with talking(server) as talk:
            assert await names(talk, "tools/list") == ["own", "loud", "state"]
            assert await names(talk, "prompts/list") == ["mine", "review"]
            assert "own://one" in await names(talk, "resources/list")
            for name in ("own", "state"):
                answer = await talk.ask("tools/call", {"name": name, "arguments": {}})
                assert answer["content"][0]["text"] == "sky"


async def test_a_server_with_a_folder_is_mounted_with_all_of_it(root: Path) -> None:
    outer = create_mcp_server("outer")
    outer.mount(make(root), "notes")
    async with talking(outer) as talk:
        assert await names(talk, "tools/list") == ["notes_echo", "notes_loud"]
        assert await names(talk, "prompts/list") == ["notes_review"]
        said = await talk.ask("prompts/get", {"name": "notes_review", "arguments": {"topic": "x", "tone": "y"}})
        assert said["messages"][0]["content"]["text"].startswith("Review x in a y tone")
        assert "resource://guide.md" in await names(talk, "resources/list")


async def test_the_parts_can_be_chosen_from_and_resources_named_otherwise(root: Path) -> None:
    parts = folder(root, uri="docs://")
    server = create_mcp_server("some", tools=parts.tools[:1], resources=parts.resources)
    async with talking(server) as talk:
        assert await names(talk, "tools/list") == ["echo"]
        assert "docs://img/logo.png" in await names(talk, "resources/list")
        assert "prompts" not in (await talk.ask("server/discover"))["capabilities"]


# Python


async def test_files_import_one_another_and_what_two_import_is_one_object(root: Path) -> None:
    write(
        root,
        **{
            "_kept.py": "KEPT = []\n",
            "tools__put.py": (
                "from toolweave import tool\nfrom .._kept import KEPT\n\n"
                "@tool\ndef put(item: str) -> int:\n    KEPT.append(item)\n    return len(KEPT)\n"
            ),
            "tools__take.py": (
                "from toolweave import tool\nfrom .put import KEPT\n\n"
                "@tool\ndef take() -> str:\n    return KEPT.pop()\n"
            ),
        },
    )
    before = list(sys.path)
    async with talking(make(root)) as talk:
        await talk.ask("tools/call", {"name": "put", "arguments": {"item": "milk"}})
        taken = await talk.ask("tools/call", {"name": "take", "arguments": {}})
    assert taken["content"][0]["text"] == "milk"
    assert sys.path == before


async def test_two_folders_with_files_of_the_same_names_are_served_together(root: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other" / "notes", **{"echo.py": TOOL.format(name="echo").replace('f"echo', 'f"other')})
    server = create_mcp_server("both")
    server.mount(make(root), "one")
    server.mount(make(other), "two")
    async with talking(server) as talk:
        said = [
            (await talk.ask("tools/call", {"name": name, "arguments": {"text": "x"}}))["content"][0]["text"]
            for name in ("one_echo", "two_echo")
        ]
    assert said == ["echo x", "other x"]


def test_only_python_in_its_places_is_run(root: Path) -> None:
    run = write(root, **{"marked.py": MARK, "resources__marked.py": MARK, "tools__deep__marked.py": MARK})
    left = {
        "_helper.py": MARK,
        "test_marked.py": MARK,
        "conftest.py": MARK,
        "setup.py": MARK,
        ".hidden.py": MARK,
        "src__marked.py": MARK,
        "tests__marked.py": MARK,
        "tools__.venv__marked.py": MARK,
        "skills__tidy__scripts__marked.py": MARK,
    }
    write(root, **left)
    folder(root)
    ran = {path.relative_to(run).as_posix() for path in root.rglob("*.ran")}
    assert ran == {"marked.ran", "resources/marked.ran", "tools/deep/marked.ran"}


def test_a_folder_that_is_made_again_has_what_its_files_say_then(root: Path) -> None:
    assert [one.name for one in folder(root).tools] == ["echo", "loud"]
    write(root, **{"echo.py": TOOL.format(name="something_else")})
    assert [one.name for one in folder(root).tools] == ["something_else", "loud"]


FAULTS = {
    "syntax": ("def (\n", "SyntaxError"),
    "lines": ("x = 1\ny = 1 / 0\n", "line 2 of 'bad.py': ZeroDivisionError: division by zero"),
    "absent": ("import no_such_module_anywhere\n", "No module named 'no_such_module_anywhere'"),
    "exit": ("import sys\nsys.exit(3)\n", "it ended the program (exit 3)"),
    "server": ("from toolweave import create_mcp_server\napi = create_mcp_server('x')\n", "another server, 'api'"),
    "schema": ("from toolweave import tool\n@tool\ndef f(*a: int) -> int:\n    return 1\n", "line 2 of 'bad.py'"),
    "neighbour": ("from loud import loud\n", "write 'from .loud import ...'"),
    "above": ("import echo\n", "write 'from ..echo import ...'"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_python_file_with_a_fault_is_left_out_and_named(
    root: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, reason = FAULTS[fault]
    write(root, **{"tools__bad.py": source})
    with caplog.at_level(logging.WARNING, "toolweave.serve"):
        parts = folder(root)
    (problem,) = parts.problems
    assert problem.startswith("file 'tools/bad.py' is left out: ")
    assert reason in problem
    assert problem in [record.getMessage() for record in caplog.records]
    async with talking(make(parts)) as talk:
        assert await names(talk, "tools/list") == ["echo", "loud"]


def test_a_name_that_cannot_be_imported_is_said(root: Path) -> None:
    write(root, **{"tools__a.b.py": TOOL.format(name="b"), "tools__with-hyphen.py": TOOL.format(name="c")})
    parts = folder(root)
    assert [one.name for one in parts.tools] == ["echo", "loud", "c"]
    (problem,) = parts.problems
    assert "'tools/a.b.py' is left out" in problem
    assert "rename it" in problem


def test_a_package_that_cannot_be_loaded_leaves_the_other_files(root: Path) -> None:
    (root / "__init__.py").write_text("raise OSError('no database')\n")
    parts = folder(root)
    assert (parts.tools, len(parts.prompts)) == ((), 1)
    assert "no database" in parts.problems[0]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TOOL.format(name="echo"), "tool 'echo'"),
        ("from toolweave.serve import prompt\n@prompt\ndef same() -> str:\n    return ''\n", "prompt 'same'"),
        ("from toolweave.serve import resource\n@resource('x://y')\ndef r() -> str:\n    return ''\n", "'x://y'"),
        ("from toolweave.serve import skill\n@skill\ndef s() -> str:\n    'Do.'\n    return ''\n", "skill://s/"),
    ],
)
def test_of_two_functions_with_one_name_the_first_stays(root: Path, code: str, said: str) -> None:
    write(root, **{"tools__first.py": code, "tools__second.py": code})
    parts = folder(root)
    assert said in parts.problems[-1]
    assert "'tools/second.py'" in parts.problems[-1]
    make(parts)


# prompts


def test_a_prompt_says_all_of_itself_in_its_frontmatter(root: Path) -> None:
    text = "---\nname: check\ntitle: Check it\ntags: [work]\n---\nCheck {{what}} and {{what-else}}.\n"
    write(root, **{"prompts__any.md": text, "prompts__deep__er.md": "---\n{}\n---\nDeeper.\n"})
    server = make(root)
    check = server.prompts.definition("check")
    assert check is not None
    assert (check["title"], check["_meta"]) == ("Check it", {"io.toolweave/tags": ["work"]})
    assert check["arguments"] == [{"name": "what", "required": True}, {"name": "what-else", "required": True}]
    assert server.prompts.definition("deep_er") is not None


async def test_a_value_is_put_in_as_it_is(root: Path) -> None:
    async with talking(make(root)) as talk:
        given = {"topic": "{{tone}} \\1 \\g<0>", "tone": "{{topic}}"}
        said = await talk.ask("prompts/get", {"name": "review", "arguments": given})
    text = said["messages"][0]["content"]["text"]
    assert text == "Review {{tone}} \\1 \\g<0> in a {{topic}} tone; {{tone}} \\1 \\g<0> it is. {{topic}} stays."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs the argument 'topic'"),
        ({"topic": "x", "other": "y"}, "has no argument 'other'"),
        ({"topic": [3]}, "must be a string"),
    ],
)
async def test_arguments_that_are_not_those_of_a_prompt_are_refused(
    root: Path, arguments: dict[str, Any], said: str
) -> None:
    async with talking(make(root)) as talk:
        refusal = await refused(talk, "prompts/get", name="review", arguments=arguments)
    assert refusal.code == -32602
    assert said in str(refusal)


BAD_PROMPTS = {
    "Review it.\n": "does not begin with YAML frontmatter",
    "---\n- a\n---\nText\n": "not a mapping",
    "---\ndescription: D\n---\n \n": "no text after its frontmatter",
    "---\nargument: [a]\n---\n{{a}}\n": "its frontmatter has 'argument', which is unknown",
    "---\narguments: a\n---\n{{a}}\n": "'arguments' are not a list",
    "---\narguments: [a b]\n---\n{{a}}\n": "'a b' is not the name of an argument",
    "---\narguments: [a, a]\n---\n{{a}}\n": "'a' is there twice",
    "---\narguments: [a]\n---\n{{b}}\n": "its text has {{b}}",
    "---\narguments: [a, b]\n---\n{{a}}\n": "its argument 'b' is nowhere in its text",
    "---\narguments:\n- name: a\n  default: 3\n---\n{{a}}\n": "'default' of its argument 'a' is 3; a text is expected",
    "---\narguments:\n- name: a\n  required: sure\n---\n{{a}}\n": "true or false is expected",
    "---\narguments:\n- name: a\n  default: x\n  required: true\n---\n{{a}}\n": "never used",
    "---\narguments:\n- name: a\n  type: string\n---\n{{a}}\n": "has 'type', which is unknown",
    "---\nname: 7\n---\nText\n": "'name' of its frontmatter is 7",
    "---\ntags: work\n---\nText\n": "a list of texts is expected",
    "---\ntags: [3]\n---\nText\n": "3 is not a tag",
    "---\nname: review\n---\nText\n": "there is a prompt 'review' already",
}


@pytest.mark.parametrize("text", BAD_PROMPTS)
async def test_a_prompt_file_with_a_fault_is_left_out_and_named(root: Path, text: str) -> None:
    write(root, **{"prompts__wrong.md": text})
    parts = folder(root)
    (problem,) = parts.problems
    assert problem.startswith("prompt file 'prompts/wrong.md' is left out: ")
    assert BAD_PROMPTS[text] in problem
    async with talking(make(parts)) as talk:
        assert await names(talk, "prompts/list") == ["review"]


def test_a_file_that_is_no_text_and_one_that_is_too_large_are_no_prompts(root: Path) -> None:
    write(root, **{"prompts__a.md": b"---\n{}\n---\n\xff\xfe", "prompts__b.md": b"---\n{}\n---\n" + b"x" * 2**20})
    first, second = folder(root).problems
    assert "it is not UTF-8" in first
    assert "larger than 1 MiB" in second


def test_a_prompt_file_does_not_take_the_name_of_a_function(root: Path) -> None:
    write(root, **{"p.py": "from toolweave.serve import prompt\n@prompt\ndef review() -> str:\n    return 'code'\n"})
    (problem,) = folder(root).problems
    assert "'prompts/review.md' is left out: there is a prompt 'review' already" in problem


async def test_prompts_and_resources_are_those_that_are_there_now(root: Path) -> None:
    parts = folder(root)
    async with talking(make(parts)) as talk:
        write(root, **{"prompts__new.md": "---\n{}\n---\nNew.\n", "resources__new.txt": "new"})
        assert await names(talk, "prompts/list") == ["new", "review"]
        assert "resource://new.txt" in await names(talk, "resources/list")
        write(root, **{"prompts__new.md": "no frontmatter any more"})
        assert (await refused(talk, "prompts/get", name="new")).code == -32602
        assert len(parts.problems) == 1
        write(root, **{"prompts__new.md": "---\n{}\n---\nAs good as new.\n"})
        said = await talk.ask("prompts/get", {"name": "new"})
        assert said["messages"][0]["content"]["text"] == "As good as new."
        assert not parts.problems
        (root / "prompts" / "new.md").unlink()
        assert await names(talk, "prompts/list") == ["review"]


async def test_tags_of_a_prompt_file_are_those_that_rules_know(root: Path) -> None:
    write(root, **{"prompts__secret.md": "---\ntags: [admin]\n---\nSecret.\n"})
    server = make(root)
    server.disable(tags={"admin"})
    async with talking(server) as talk:
        assert await names(talk, "prompts/list") == ["review"]
        assert "Unknown prompt" in str(await refused(talk, "prompts/get", name="secret"))


# what a client cannot reach


@pytest.mark.parametrize(
    "path",
    [
        "../secret.md",
        "%2e%2e/secret.md",
        "..%2Fsecret.md",
        "img/../../echo.py",
        "../echo.py",
        ".env",
        "code.py",
        "code.pyc",
        "__pycache__/code.cpython-311.pyc",
        "out.md",
        "outside/secret.md",
        "img",
        "",
    ],
)
async def test_nothing_but_the_files_of_resources_can_be_read(root: Path, tmp_path: Path, path: str) -> None:
    write(root, **{"resources__.env": "hunter2", "resources__code.py": "KEY = 'hunter2'\n"})
    write(root, **{"resources__code.pyc": "hunter2"})
    (root / "resources" / "__pycache__").mkdir(exist_ok=True)
    (root / "resources" / "__pycache__" / "code.cpython-311.pyc").write_text("hunter2")
    (root / "resources" / "out.md").symlink_to(tmp_path / "secret.md")
    (root / "resources" / "outside").symlink_to(tmp_path)
    async with talking(make(root)) as talk:
        assert (await refused(talk, "resources/read", uri=f"resource://{path}")).code == -32602
        assert set(await names(talk, "resources/list")) == {
            "resource://guide.md",
            "resource://img/logo.png",
            "skill://tidy/SKILL.md",
        }


@pytest.mark.parametrize("name", ["resources", "prompts", "skills"])
async def test_a_folder_that_leads_elsewhere_is_left_out(root: Path, tmp_path: Path, name: str) -> None:
    (root / name).rename(tmp_path / "moved")
    (root / name).symlink_to(tmp_path / "moved")
    parts = folder(root)
    assert [problem for problem in parts.problems if f"folder {name!r} is left out" in problem]
    async with talking(make(parts)) as talk:
        method = "prompts/list" if name == "prompts" else "resources/list"
        offered = [] if name == "prompts" else await names(talk, method)
        gone = {"resources": "resource://guide.md", "prompts": "review", "skills": "skill://tidy/SKILL.md"}
        assert gone[name] not in offered
        assert ("prompts" in (await talk.ask("server/discover"))["capabilities"]) == (name != "prompts")


def test_python_behind_a_link_that_leads_out_is_not_run(root: Path, tmp_path: Path) -> None:
    write(tmp_path, **{"elsewhere__marked.py": MARK})
    (root / "tools" / "marked.py").symlink_to(tmp_path / "elsewhere" / "marked.py")
    (root / "tools" / "more").symlink_to(tmp_path / "elsewhere")
    folder(root)
    assert not list(tmp_path.rglob("*.ran"))


# a folder that is none


def test_a_folder_without_anything_to_serve_is_refused_with_the_reasons(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="there is nothing to serve in"):
        make(empty)
    write(empty, **{"tools__bad.py": "1 / 0\n", "prompts__bad.md": "x", "skills__bad__SKILL.md": "x"})
    with pytest.raises(ValueError, match="nothing to serve") as refusal:
        make(empty)
    for place in ("tools/bad.py", "prompts/bad.md", "skill://bad/SKILL.md"):
        assert place in str(refusal.value)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        folder(tmp_path / "absent")
