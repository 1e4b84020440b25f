"""A new or changed tool is decided once, for all replicas of a gateway, each with the lock file on its machine."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from tests.cli.command import toolweave
from tests.console.browsing import Browser
from tests.console.conftest import browse, served
from tests.gateway.running import RunningGateway, gateway, until, write_gateway_config
from toolweave.definitions import tool_hash
from toolweave.state import iter_documents, open_store

pytestmark = pytest.mark.slow

LOCK = "toolweave.lock"
SEVERAL_LOOKS = 12.0
"""Seconds in which a replica has looked for decisions more than once."""
ENV = {"PIN_KEYS": "pins-" + "k" * 32}


def pinned(folder: Path, *unknown: str) -> Path:
    """Write the config of a replica and its pins, without those of some tools."""
    folder.mkdir(exist_ok=True)
    config = write_gateway_config(folder, {"kitchen": served("kitchen", pins="block")})
    done = toolweave("pin", "--config", config, cwd=folder)
    assert done.code == 0, done.err
    lock = folder / LOCK
    known = json.loads(lock.read_text())
    for name in unknown:
        del known["servers"]["kitchen"]["tools"][name]
    lock.write_text(json.dumps(known))
    return config


def tools_in(folder: Path) -> set[str]:
    """Return the tools that the lock file of a replica has."""
    return set(json.loads((folder / LOCK).read_text())["servers"]["kitchen"]["tools"])


@contextmanager
def replica(folder: Path, config: Path, redis_url: str) -> Generator[RunningGateway]:
    """Run a replica of which the others know."""
    words = ("--redis-env", "PIN_REDIS", "--state-keys-env", "PIN_KEYS", "--wait", "20")
    with gateway(folder, config, *words, env={**ENV, "PIN_REDIS": redis_url}) as running:
        yield running


def allow_first(browser: Browser) -> str:
    """Allow the first difference of a page; return its tool."""
    form = next(one for one in browser.get("/ui/pins").forms if "seen" in one.fields)
    answer = browser.submit(form).text
    assert "this is pinned now" in answer
    return next(name for name in ("who", "fail") if f"tool '{name}'" in answer or f"tool &#39;{name}&#39;" in answer)


def change_pin(folder: Path, tool: str) -> None:
    """Pin another definition of a tool than its server has."""
    lock = folder / LOCK
    known = json.loads(lock.read_text())
    definition = {"name": tool, "description": "Another one.", "inputSchema": {"type": "object"}}
    known["servers"]["kitchen"]["tools"][tool] = {"sha256": tool_hash(definition), "definition": definition}
    lock.write_text(json.dumps(known))


async def copy_decision(url: str, seen: str) -> None:
    """Store the decision that was made under the name of another difference also."""
    key = hashlib.sha256(f"kitchen\n{seen}".encode()).hexdigest()
    async with open_store(url) as store:
        (made,) = [one async for one in iter_documents(store, "gateway-allowed")]
        await store.put("gateway-allowed", key, made.value)


def offers(browser: Browser, tool: str) -> bool:
    """Return whether a replica offers a tool."""
    return tool in browser.get("/ui/tools").text


def test_a_new_tool_that_is_allowed_at_one_replica_is_offered_by_all_and_others_stay_withheld(
    tmp_path: Path, redis_url: str
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    configs = [pinned(folder, "who", "fail") for folder in folders]
    with ExitStack() as stack:
        running = [
            stack.enter_context(replica(folder, config, redis_url))
            for folder, config in zip(folders, configs, strict=True)
        ]
        browsers = [browse(one) for one in running]
        until(lambda: all("4 differences" in one.get("/ui/pins").text for one in browsers), "the differences")
        before = [offers(one, "kitchen_who") for one in browsers]
        form = next(one for one in browsers[0].get("/ui/pins").forms if "seen" in one.fields)
        allowed = browsers[0].submit(form)
        until(lambda: all("2 differences" in one.get("/ui/pins").text for one in browsers), "the decision")
        after = [[offers(one, f"kitchen_{name}") for name in ("who", "fail")] for one in browsers]

    assert before == [False, False]
    assert "this is pinned now" in allowed.text
    assert after[0] == after[1]
    assert sorted(after[0]) == [False, True]
    assert tools_in(folders[0]) == tools_in(folders[1])


def test_a_replica_that_was_down_offers_what_was_allowed_meanwhile_and_nothing_else(
    tmp_path: Path, redis_url: str
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    configs = [pinned(folder, "who", "fail") for folder in folders]
    with replica(folders[0], configs[0], redis_url) as first:
        browser = browse(first)
        until(lambda: "2 differences" in browser.get("/ui/pins").text, "the differences")
        allowed = allow_first(browser)
    with replica(folders[1], configs[1], redis_url) as second:
        late = browse(second)
        until(lambda: offers(late, f"kitchen_{allowed}"), "the tool at the second replica")
        shown = late.get("/ui/pins").text
        others = [offers(late, f"kitchen_{name}") for name in ("who", "fail") if name != allowed]

    assert "1 difference " in shown
    assert others == [False]
    assert tools_in(folders[0]) == tools_in(folders[1])


def test_a_decision_is_not_applied_to_another_difference_of_the_same_tool(tmp_path: Path, redis_url: str) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    configs = [pinned(folder, "who") for folder in folders]
    with replica(folders[0], configs[0], redis_url) as first:
        browser = browse(first)
        until(lambda: "1 difference " in browser.get("/ui/pins").text, "the difference")
        assert allow_first(browser) == "who"
    change_pin(folders[1], "who")
    with replica(folders[1], configs[1], redis_url) as second:
        late = browse(second)
        until(lambda: "1 difference " in late.get("/ui/pins").text, "the difference at the second replica")
        time.sleep(SEVERAL_LOOKS)
        withheld = not offers(late, "kitchen_who")

    assert withheld


def test_a_decision_that_no_replica_wrote_is_ignored(tmp_path: Path, redis_url: str) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    configs = [pinned(folder, "who", "fail") for folder in folders]
    with replica(folders[0], configs[0], redis_url) as first:
        browser = browse(first)
        until(lambda: "2 differences" in browser.get("/ui/pins").text, "the differences")
        allowed = allow_first(browser)
        other = browser.get("/ui/pins").forms
        seen = next(one.fields["seen"] for one in other if "seen" in one.fields)
    anyio.run(copy_decision, redis_url, seen)
    with replica(folders[1], configs[1], redis_url) as second:
        late = browse(second)
        until(lambda: offers(late, f"kitchen_{allowed}"), "the tool that was allowed")
        time.sleep(SEVERAL_LOOKS)
        tools = {name for name in ("who", "fail") if offers(late, f"kitchen_{name}")}

    assert tools == {allowed}
    assert "no replica with these keys wrote it" in second.log
