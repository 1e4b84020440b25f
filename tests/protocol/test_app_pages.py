"""Pages of MCP Apps as a host reads them: what of a server's word becomes part of a policy, and what does not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from toolweave.protocol.app_pages import page_policy, read_document, without_result_type
from toolweave.protocol.apps import AppCsp, is_for_pages

URI = "ui://notes/board"
HTML = "<!doctype html><title>Bürd</title>"
HOST = "http://127.0.0.1:8000"


def read(ui: Any = None, listed: Any = None, **content: Any) -> Any:
    """Read a page, with `_meta.ui` in its content, in its listing, or in neither."""
    meta = {} if ui is None else {"_meta": {"ui": ui}}
    one = {"uri": URI, "mimeType": "text/html;profile=mcp-app", "text": HTML, **meta, **content}
    return read_document(URI, {"contents": [{"uri": "ui://other"}, one]}, listed)


def directives(policy: str) -> dict[str, str]:
    """Return the directives of a policy by name."""
    return dict(part.split(" ", 1) for part in policy.split("; "))


def test_a_page_that_says_nothing_may_load_nothing() -> None:
    page = read()

    assert (page.html, page.csp, page.refused, page.permissions, page.prefers_border) == (HTML, AppCsp(), (), (), None)
    assert directives(page_policy(page.csp, host=HOST)) == {
        "default-src": "'none'",
        "script-src": "'unsafe-inline'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "media-src": "data:",
        "font-src": "'none'",
        "connect-src": "'none'",
        "frame-src": "'none'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'none'",
        "frame-ancestors": HOST,
    }


def test_the_origins_of_a_page_are_put_where_they_belong() -> None:
    page = read(
        {
            "csp": {
                "connectDomains": ["https://api.example", "wss://*.example:443"],
                "resourceDomains": ["https://cdn.example"],
                "frameDomains": ["https://video.example"],
                "baseUriDomains": ["https://base.example"],
            },
            "permissions": {"camera": {}},
            "prefersBorder": False,
        }
    )
    found = directives(page_policy(page.csp, host=HOST))

    assert found["connect-src"] == "https://api.example wss://*.example:443"
    assert found["script-src"] == found["style-src"] == "'unsafe-inline' https://cdn.example"
    assert found["img-src"] == found["media-src"] == "data: https://cdn.example"
    assert (found["font-src"], found["frame-src"]) == ("https://cdn.example", "https://video.example")
    assert (found["base-uri"], found["default-src"]) == ("https://base.example", "'none'")
    assert (page.permissions, page.prefers_border) == (("camera",), False)


@pytest.mark.parametrize(
    "named",
    [
        "https://a.example; script-src *",
        "https://a.example\nscript-src *",
        "'unsafe-eval'",
        "*",
        "https:",
        "data://x",
        "blob://x",
        "https://a.example/path",
        "https://a.example,https://b.example",
        "",
        7,
        None,
        ["https://a.example"],
    ],
)
def test_what_is_no_origin_becomes_no_part_of_a_policy_and_is_told(named: Any) -> None:
    page = read({"csp": {"resourceDomains": [named, "https://good.example"], "connectDomains": named}})

    assert page.csp.resource_domains == ("https://good.example",)
    assert f"resourceDomains: {named!r}" in page.refused
    assert directives(page_policy(page.csp, host=HOST))["script-src"] == "'unsafe-inline' https://good.example"


def test_what_the_content_says_wins_over_the_listing() -> None:
    listed = {"ui": {"csp": {"resourceDomains": ["https://listed.example"]}, "prefersBorder": True}}

    own = read({"csp": {"connectDomains": ["https://own.example"]}}, listed)
    silent = read(None, listed)

    assert (own.csp.resource_domains, own.csp.connect_domains) == ((), ("https://own.example",))
    assert (silent.csp.resource_domains, silent.prefers_border) == (("https://listed.example",), True)


def test_a_document_in_base64_is_read_too() -> None:
    assert read(text=None, blob=base64.b64encode(HTML.encode()).decode()).html == HTML


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"mimeType": "text/html"}, "is of the type 'text/html'"),
        ({"mimeType": None}, "is of the type 'none'"),
        ({"text": None}, "neither a text nor a blob"),
        ({"text": None, "blob": "%"}, "not UTF-8 in base64"),
        ({"text": None, "blob": "/w=="}, "not UTF-8 in base64"),
    ],
)
def test_what_is_no_page_is_told_with_its_reason(content: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(**content)


def test_a_page_without_content_is_told() -> None:
    with pytest.raises(ValueError, match="has no content"):
        read_document(URI, {"contents": "text"})


@pytest.mark.parametrize(
    ("ui", "may"),
    [
        (None, True),
        ({}, True),
        ({"visibility": ["model", "app"]}, True),
        ({"visibility": ["app"]}, True),
        ({"visibility": ["model"]}, False),
        ({"visibility": []}, False),
        ({"visibility": "app"}, True),
    ],
)
def test_a_page_may_call_a_tool_unless_its_visibility_leaves_pages_out(ui: Any, may: bool) -> None:
    assert is_for_pages({} if ui is None else {"ui": ui}) is may


def test_a_page_is_given_results_and_nothing_that_is_none_yet() -> None:
    assert without_result_type({"resultType": "complete", "content": []}) == {"content": []}
    with pytest.raises(ValueError, match="not a complete result"):
        without_result_type({"resultType": "input_required"})
