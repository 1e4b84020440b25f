"""Who sees the console, and whose forms it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import toolweave
from tests.console.browsing import Browser
from tests.console.conftest import browse, link
from tests.gateway.running import RunningGateway, gateway, spoken, upstream, write_gateway_config

PAGES = (
    *("/ui/", "/ui/server?name=kitchen", "/ui/tools", "/ui/tool?name=kitchen_who", "/ui/offers", "/ui/calls"),
    *("/ui/tasks", "/ui/pins", "/ui/sign-ins", "/ui/config"),
)
ADMIN = "an-admin-token-of-the-tests"


@pytest.mark.slow
def test_a_link_signs_in_the_first_browser_that_opens_it_and_no_other(running: RunningGateway) -> None:
    path = link(running)
    first, second = Browser(running.base), Browser(running.base)

    page = first.get(path)

    assert (page.status, page.headers["referrer-policy"]) == (200, "same-origin")
    assert ("meta", {"http-equiv": "refresh", "content": "0;url=/ui/"}) in page.tags
    (cookie,) = page.cookies
    port = running.base.rpartition(":")[2]
    assert cookie.startswith(f"toolweave-console-{port}=")
    assert "; Path=/ui; HttpOnly; SameSite=Strict; Max-Age=43200" in cookie
    assert first.get("/ui/").status == 200
    refused = second.get(path)
    assert (refused.status, refused.cookies, "used before" in refused.text) == (401, [], True)
    assert first.get(path).headers["location"] == "/ui/"


@pytest.mark.parametrize("path", PAGES)
def test_a_browser_that_is_not_signed_in_is_shown_nothing(running: RunningGateway, path: str) -> None:
    page = Browser(running.base).get(path)

    assert page.status == 401
    assert "Sign in" in page.text
    assert "kitchen" not in page.html


def test_a_part_of_a_page_leads_to_the_sign_in_once_a_session_is_over(running: RunningGateway) -> None:
    page = Browser(running.base).get("/ui/", {"hx-request": "true"})

    assert (page.status, page.headers["hx-redirect"], page.body) == (401, "/ui/", b"")


def test_the_admin_token_signs_in_by_a_form(running: RunningGateway) -> None:
    browser = Browser(running.base)
    form = browser.get("/ui/").form("/sign-in")

    wrong = browser.submit(form, token="not-the-token-of-this-gateway")
    right = browser.submit(form, token=running.token)

    assert (wrong.status, "not the admin token" in wrong.text) == (401, True)
    assert (right.status, "Servers" in right.text) == (200, True)


def test_a_page_under_another_name_is_not_served(browser: Browser) -> None:
    assert browser.get("/ui/", {"host": "evil.example"}).status == 421  # a name that an attacker leads to this machine


def test_the_sign_in_says_which_command_makes_a_link(running: RunningGateway) -> None:
    assert f"toolweave gateway console --url {running.base}" in Browser(running.base).get("/ui/").text


def test_signing_out_ends_the_session_of_that_browser_alone(running: RunningGateway, browser: Browser) -> None:
    other = browse(running)
    cookie = browser.cookie

    page = browser.submit(browser.get("/ui/").form("/sign-out"))

    assert (page.status, "Signed out" in page.text) == (200, True)
    browser.cookie = cookie  # whoever kept it
    assert browser.get("/ui/").status == 401
    assert other.get("/ui/").status == 200


@pytest.mark.parametrize("path", [*PAGES, "/ui/nothing", "/ui/static/console.css"])
def test_every_page_forbids_frames_and_foreign_content(browser: Browser, path: str) -> None:
    page = browser.get(path)

    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; " in policy
    assert "script-src 'self'; " in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == (
        "no-store" if "static" not in path else "private, max-age=31536000, immutable"
    )


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_script_or_a_style_of_its_own(browser: Browser, path: str) -> None:
    page = browser.get(path)

    assert page.status == 200
    for tag, attributes in page.tags:
        assert tag != "style"
        assert tag != "script" or attributes.get("src", "").startswith("/ui/static/")
        assert not [name for name in attributes if name == "style" or name.startswith("on")]


@pytest.mark.parametrize("path", PAGES)
def test_a_reader_finds_its_way_on_every_page(browser: Browser, path: str) -> None:
    page = browser.get(path)
    tags = [tag for tag, _ in page.tags]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]

    assert ("html", {"lang": "en"}) in page.tags
    assert [tags.count(one) for one in ("header", "nav", "main", "footer", "h1", "title")] == [1] * 6
    assert len(ids) == len(set(ids))
    assert page.ids["main"] == "main"
    labelled = {attributes["for"] for tag, attributes in page.tags if tag == "label"}
    shown = [one for tag, one in page.tags if tag in ("input", "select", "textarea") and one.get("type") != "hidden"]
    assert {one["id"] for one in shown} <= labelled
    for _, attributes in page.tags:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set(attributes.get(name, "").split()) <= set(ids)


def test_a_form_without_the_token_of_its_session_changes_nothing(running: RunningGateway, browser: Browser) -> None:
    form, other = browser.get("/ui/").form("/remove", name="kitchen"), browse(running)
    foreign = other.get("/ui/").form("/remove", name="kitchen").fields["csrf"]

    for token in ("", "x", foreign):
        refused = browser.submit(form, csrf=token)
        assert (refused.status, "another session" in refused.text) == (403, True)
    assert "kitchen" in browser.get("/ui/").text


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://localhost:1", "sec-fetch-site": ""}, 403),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_a_form_of_another_page_is_refused(browser: Browser, headers: dict[str, str], status: int) -> None:
    form = browser.get("/ui/").form("/reload")

    assert browser.post(form.action, form.fields, headers).status == status


@pytest.mark.parametrize(
    "method, path, status",
    [("PUT", "/ui/", 405), ("POST", "/ui/nothing", 404), ("GET", "/ui/static/../app.py", 404), ("GET", "/uix", 404)],
)
def test_other_requests_are_refused(
    running: RunningGateway, browser: Browser, method: str, path: str, status: int
) -> None:
    csrf = browser.get("/ui/").form("/reload").fields["csrf"]
    headers = {"cookie": browser.cookie or "", "content-type": "application/x-www-form-urlencoded"}

    found = spoken(running.base, method, path, f"csrf={csrf}".encode() if method == "POST" else None, headers, raw=True)

    assert found.status == status


@pytest.mark.slow
def test_a_gateway_on_loopback_has_a_console_unless_it_is_told_not_to(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--no-ui") as one:
        assert "console" not in one.said
        assert one.spoken("GET", "/ui/").status == 404
        assert one.admin("POST", "/console", {}).json["error"]["code"] == "not_found"
        told = toolweave("gateway", "console", "--url", one.base, env=one.env)
        assert (told.code, "no console" in told.err) == (2, True)


@pytest.mark.slow
def test_the_section_of_the_config_may_switch_it_off(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, {"ui": False})
    with gateway(tmp_path, config) as one:
        assert one.spoken("GET", "/ui/").status == 404


@pytest.mark.slow
def test_on_other_addresses_it_is_there_on_demand_behind_the_admin_token(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    words = ("--admin-token-env", "ADMIN", "--allow-host", "gateway.example")
    with gateway(tmp_path, config, *words, "--ui", env={"ADMIN": ADMIN}, address="0.0.0.0:0") as one:
        base = one.base.replace("0.0.0.0", "127.0.0.1")
        browser, headers = Browser(base), {"host": "gateway.example", "origin": "https://gateway.example"}
        assert browser.get("/ui/").status == 401
        page = browser.post("/ui/sign-in", {"token": ADMIN}, headers)

        assert page.status == 303
        assert "; Secure; " in page.cookies[0]  # kept over https alone
        assert page.cookies[0].startswith("toolweave-console-default=")
        assert browser.get("/ui/", headers).status == 200
        without = Browser(base).get("/ui/?signed=in", headers)
        assert "requires https" in without.text


@pytest.mark.slow
def test_on_other_addresses_there_is_none_by_itself_nor_without_a_token(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, "--admin-token-env", "ADMIN", env={"ADMIN": ADMIN}, address="0.0.0.0:0") as one:
        base = one.base.replace("0.0.0.0", "127.0.0.1")
        assert spoken(base, "GET", "/ui/").status == 404

    told = toolweave("gateway", "--config", config, "--http", "0.0.0.0:0", "--ui")
    assert (told.code, "admin token" in told.err) == (2, True)


@pytest.mark.slow
def test_the_command_makes_a_link_that_signs_in(running: RunningGateway) -> None:
    told = toolweave("gateway", "console", "--url", running.base, env=running.env)

    assert told.code == 0
    browser = Browser(running.base)
    assert browser.get(told.out.strip().removeprefix(running.base)).status == 200
    assert browser.get("/ui/").status == 200
    assert (
        toolweave("gateway", "console", "--url", running.base, "--json", env=running.env)
        .json["url"]
        .startswith(f"{running.base}/ui/?token=")
    )
