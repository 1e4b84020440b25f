"""A person at the console of a gateway watches and cancels tasks of callers, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessible import problems
from tests.browser.console import sign_in
from tests.browser.picturing import take
from tests.console.test_tasks import KEYS, MODERN, kitchens
from tests.gateway.running import RunningGateway

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def called(running: RunningGateway, caller: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool as a caller that takes tasks."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    }
    headers = {
        "authorization": f"Bearer {KEYS[caller]}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": meta}
    return running.spoken(
        "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers
    ).json["result"]


@pytest.mark.parametrize("scripts", [True, False])
def test_a_task_of_a_caller_is_cancelled_by_keyboard(chromium: Any, tmp_path: Path, scripts: bool) -> None:
    with kitchens(tmp_path, MODERN) as running:
        page = chromium.new_page(viewport={"width": 1080, "height": 620}, java_script_enabled=scripts)
        sign_in(page, running)
        for caller, tool, arguments in (
            ("ada", "kitchen_burn", {}),
            ("grace", "kitchen_ask", {}),
            ("ada", "kitchen_cook", {"name": "never"}),
        ):
            assert called(running, caller, tool, **arguments)["resultType"] == "task"
        page.get_by_role("link", name="Tasks", exact=True).press("Enter")
        page.get_by_text("3 tasks, 2 not ended").wait_for()
        page.get_by_role("cell", name="waits for its caller").wait_for()
        found = problems(page) if scripts else []
        take(page, "console-tasks", "light")
        page.get_by_role("button", name="kitchen_cook").press("Enter")
        page.get_by_text("Server 'kitchen' is asked to cancel 'kitchen_cook'.").wait_for()
        page.get_by_text("3 tasks, 1 not ended").wait_for()
        page.close()

    assert found == []
