"""URI templates: what they match, and what no value of theirs can do."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import ProtocolError, connect_mcp, create_mcp_server
from toolweave.errors import SchemaError
from toolweave.serve import resource
from toolweave.serve._offers.templates import Template, leaves_directory

pytestmark = [pytest.mark.requirement("R101")]


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a://{x}", "a://1", {"x": "1"}),
        ("a://{x}", "a://", None),
        ("a://{x}", "a://1/2", None),
        ("a://{x}", "b://1", None),
        ("a://{x}", "a://caf%C3%A9%20%E2%82%AC", {"x": "café €"}),
        ("a://{x}", "a://100%25", {"x": "100%"}),
        ("a://{x}", "a://50%", {"x": "50%"}),
        ("a://{x}", "a://b%2Fc", {"x": "b/c"}),
        ("a://{x}", "a://b%252Fc", {"x": "b%2Fc"}),
        ("a://{x}/{y}", "a://b%2fc/d%2Fe%2Ff", {"x": "b/c", "y": "d/e/f"}),
        ("a://{x}/{+y}", "a://b%2Fc/d/e%2Ff", {"x": "b/c", "y": "d/e/f"}),
        ("a://{x}", "a://?q=1#f", {"x": "?q=1#f"}),
        ("a://{x}/end", "a://1/end", {"x": "1"}),
        ("a://{x}/end", "a:///end", None),
        ("a://{x}/end", "a://1/ends", None),
        ("a://{x}/{y}", "a://1/2", {"x": "1", "y": "2"}),
        ("a://{x}/{y}", "a://1/", None),
        ("a://{x}-{y}", "a://1-2-3", {"x": "1", "y": "2-3"}),
        ("a://{x}--{y}", "a://---2", {"x": "-", "y": "2"}),
        ("a://{x}/b{y}", "a://1/b/b", None),
        ("{x}:{y}", "a:b", {"x": "a", "y": "b"}),
        ("a://{+x}", "a://1/2/3", {"x": "1/2/3"}),
        ("a://{+x}", "a://", None),
        ("a://{+x}/x/{y}", "a://1/x/2/x/3", {"x": "1/x/2", "y": "3"}),
        ("a://{x}/{+y}/{z}", "a://1/2/3/4", {"x": "1", "y": "2/3", "z": "4"}),
        ("a://{x}/{+y}/{z}", "a://1/2/3", {"x": "1", "y": "2", "z": "3"}),
        ("a://{x}/{+y}/{z}", "a://1/2", None),
        ("a://{+x}.txt", "a://b/c.txt", {"x": "b/c"}),
        ("a://{+x}.txt", "a://.txt", None),
        ("aba{x}aba", "ababa", None),
        ("a://{+url}", "a://https://example.org/x", {"url": "https://example.org/x"}),
        ("a://{x*}", "a://1/2/3", {"x": "1/2/3"}),
        ("a://{x*}/{y}", "a://1/2/3", {"x": "1/2", "y": "3"}),
        ("a://n{?q,limit}", "a://n", {}),
        ("a://n{?q,limit}", "a://n?", {}),
        ("a://n{?q,limit}", "a://n?q=a%20b&limit=3", {"q": "a b", "limit": "3"}),
        ("a://n{?q,limit}", "a://n?limit=3&q=a+b", {"q": "a b", "limit": "3"}),
        ("a://n{?q}", "a://n?q=a%2Bb", {"q": "a+b"}),
        ("a://n{?q}", "a://n?q=", {"q": ""}),
        ("a://n{?q}", "a://n?q", {"q": ""}),
        ("a://n{?q}", "a://n?q=a=b", {"q": "a=b"}),
        ("a://n{?q}", "a://n?q=a/b%26c", {"q": "a/b&c"}),
        ("a://n{?q}", "a://n?q=1&q=2", None),
        ("a://n{?q}", "a://n?other=1", None),
        ("a://n{?q}", "a://m?q=1", None),
        ("a://n{?q}", "a://n/x?q=1", None),
        ("a://n{?q}", "a://n?q=..%2Fx", None),
        ("a://{id}{?format}", "a://7?format=json", {"id": "7", "format": "json"}),
        ("a://{id}{?format}", "a://7", {"id": "7"}),
        ("a://{id}{?format}", "a://?format=json", None),
        ("a://{+p}{?v}", "a://b/c?v=1", {"p": "b/c", "v": "1"}),
        ("http://docs.example{?q}", "http://docs.example/?q=1", {"q": "1"}),
        ("http://docs.example{?q}", "http://docs.example?q=1", {"q": "1"}),
        ("Notes://all{?q}", "notes://all?q=caf%C3%A9", {"q": "café"}),
    ],
)
def test_a_template_matches_what_it_stands_for(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert Template(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a://{x", "brace"),
        ("a://x}", "brace"),
        ("a://{{x}}", "brace"),
        ("a://x", "no variable"),
        ("a://{}", "not supported"),
        ("a://{?x}/b", "not supported"),
        ("a://{?}", "is not a name"),
        ("a://{?x,}", "is not a name"),
        ("a://{?x*}", "is not a name"),
        ("a://{x}{?x}", "twice"),
        ("a://b?y=1{?x}", "two queries"),
        ("a://{x,y}", "not supported"),
        ("a://{/x*}", "not supported"),
        ("a://{x*}/{+y}", "one is possible"),
        ("a://{#x}", "not supported"),
        ("a://{1}", "not supported"),
        ("a://{x}/{x}", "twice"),
        ("a://{x}{y}", "between"),
        ("a://{+x}/{+y}", "one is possible"),
    ],
)
def test_a_template_that_cannot_be_matched_is_refused_by_name(template: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said) as refused:
        Template(template)
    assert template in str(refused.value)


OUT = [
    "..",
    "../secret",
    "a/../../secret",
    "a/..",
    "/etc/passwd",
    "//etc/passwd",
    "..\\secret",
    "a\\b",
    "\\\\server\\share",
    "C:/windows",
    "c:windows",
    "a\0b",
    "a\nb",
    "a\x7f",
    ".. /secret",
    "..../secret",
    "... /secret",
]


def encoded(text: str, times: int) -> str:
    """Percent-encode every character, again and again."""
    for _ in range(times):
        text = "".join(f"%{byte:02X}" for byte in text.encode())
    return text


@pytest.mark.parametrize("form", ["{x}", "{+x}", "{x*}", "{?x}"])
@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize("path", OUT, ids=ascii)
def test_no_encoding_of_a_way_out_of_a_directory_matches(path: str, times: int, form: str) -> None:
    before = "files://?x=" if "?" in form else "files://"
    template = Template(f"files://{form}")

    assert template.match(before + encoded(path, times)) is None
    assert template.match(before + quote(path, safe="/")) is None
    assert template.match(before + quote(quote(path, safe=""), safe="")) is None


@pytest.mark.parametrize(
    "value",
    ["%C0%AE%C0%AE", "%C0%AE%C0%AE/x", "%ff", "%E2%82", "a%5Cb", "%2Fa", "a%2F..", "%25252e" * 2, "%00", "%2500"],
)
def test_broken_and_hidden_characters_match_no_plain_variable(value: str) -> None:
    assert Template("files://{x}").match(f"files://{value}") is None


def test_what_only_looks_like_a_way_out_is_a_value() -> None:
    for text in ("a..b", "..a", "a..", ".hidden", "a.b.c", "~root", "ab:c", "$HOME", "-rf", "file.txt"):
        assert Template("a://{x}").match(f"a://{text}") == {"x": text}
        assert not leaves_directory(text)
    assert Template("a://{+x}").match("a://a/./b//c/") == {"x": "a/./b//c/"}


def test_more_layers_of_encoding_than_anybody_has_a_use_for_match_nothing() -> None:
    assert Template("a://{x}").match("a://" + encoded("é", 2)) == {"x": "%C3%A9"}
    assert Template("a://{x}").match("a://%" + "25" * 8 + "41") is None


def test_a_uri_longer_than_any_server_takes_matches_nothing() -> None:
    template = Template("a://{x}")

    assert template.match("a://" + "x" * 8188) is not None
    assert template.match("a://" + "x" * 8189) is None


class Counted(str):
    """A text that counts how often it is searched, and how far it could be looked through each time."""

    __slots__ = ("looked_at",)

    def __init__(self, _text: str) -> None:
        self.looked_at = 0

    def find(self, *args: object) -> int:  # type: ignore[override]
        found = super().find(*args)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.looked_at += (len(self) if found < 0 else found) - int(str(args[1]))
        return found


def test_the_worst_of_uris_is_looked_at_once() -> None:
    template = Template("a://" + "-".join(f"{{v{number}}}" for number in range(20)) + "!")
    uri = Counted("a://" + "-" * 8000 + "!")

    template.match(uri)

    assert uri.looked_at <= len(uri)


def reference(literals: list[str], whole: int, uri: str) -> bool:
    """Match as a backtracking expression would, values undecoded; variable number `whole` has slashes."""
    pattern = re.escape(literals[0])
    for number, literal in enumerate(literals[1:]):
        pattern += (".+" if number == whole else "[^/]+") + re.escape(literal)
    return re.fullmatch(pattern, uri, re.DOTALL) is not None


TEXT = st.text("ab/-", min_size=1, max_size=4)


@pytest.mark.slow
@given(
    literals=st.lists(TEXT, min_size=2, max_size=4),
    whole=st.integers(-1, 2),
    uri=st.text("ab/-", max_size=14),
)
def test_a_uri_matches_exactly_when_some_split_of_it_does(literals: list[str], whole: int, uri: str) -> None:
    names = [f"{'+' if number == whole else ''}v{number}" for number in range(len(literals) - 1)]
    text = literals[0] + "".join(f"{{{name}}}{literal}" for name, literal in zip(names, literals[1:], strict=True))
    template = Template(text)

    raw = template._split(uri)
    matched = raw is not None and all(
        "/" not in part or name.startswith("+") for name, part in zip(names, raw, strict=True)
    )

    assert matched == reference(literals, whole, uri)


@pytest.mark.slow
@given(st.text(max_size=30))
def test_every_honest_value_comes_back_from_its_encoding(value: str) -> None:
    found = Template("a://{x}/b").match(f"a://{quote(value, safe='', errors='surrogatepass')}/b")

    assert found in ({"x": value}, None)
    if value.isalnum() and value.isascii():
        assert found == {"x": value}


@given(st.text(max_size=60))
def test_no_uri_at_all_gives_a_value_that_leaves_a_directory(uri: str) -> None:
    for text in ("{+x}", "a{x}", "{x}/{+y}"):
        for value in (Template(text).match(uri) or {}).values():
            assert value
            assert "\0" not in value
            assert not leaves_directory(value)


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_a_resource_with_a_query_is_read_with_what_the_uri_has_of_it(revision: str) -> None:
    server = create_mcp_server("s")

    @server.resource("notes://{id}{?format,limit}")
    def note(id: str, format: str = "text", limit: int = 10) -> str:
        return f"{id}|{format}|{limit}"

    async with connect_mcp({"server": server, "protocol": revision}) as client:
        (listed,) = await client.list_resource_templates()
        assert listed.uri_template == "notes://{id}{?format,limit}"
        for uri, text in [
            ("notes://7", "7|text|10"),
            ("notes://7?limit=3", "7|text|3"),
            ("notes://7?limit=3&format=a%20b", "7|a b|3"),
        ]:
            assert (await client.read_resource(uri))[0].text == text
        for uri in ("notes://7?limit=many", "notes://7?page=2", "notes://7?limit=1&limit=2"):
            with pytest.raises(ProtocolError):
                await client.read_resource(uri)


def test_a_parameter_that_a_uri_may_lack_has_a_default() -> None:
    with pytest.raises(SchemaError, match="give the parameter of 'search' a default"):

        @resource("notes://all{?q}")
        def search(q: str) -> str:
            return q

        assert search
