"""A person at the console of a gateway answers runs that wait, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessible import problems
from tests.browser.console import sign_in
from tests.console.parked import BOOK, parked, resumed
from tests.gateway.running import gateway, write_gateway_config
from toolweave.models import tool_call

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("scripts", [True, False])
def test_a_run_that_waits_is_answered_by_keyboard(chromium: Any, tmp_path: Path, scripts: bool) -> None:
    run_id = parked(tmp_path, BOOK, tool_call("delete", {"name": "old.txt"}, id="c2"))
    config = write_gateway_config(tmp_path, {}, {"name": "company", "runs": f"sqlite:///{tmp_path / 'runs.db'}"})
    with gateway(tmp_path, config) as running:
        page = chromium.new_page(viewport={"width": 1080, "height": 620}, java_script_enabled=scripts)
        sign_in(page, running)
        page.get_by_role("link", name="Runs", exact=True).press("Enter")
        page.get_by_text("1 run, 1 waiting for a person").wait_for()
        found = {"/runs": problems(page)} if scripts else {}
        page.get_by_role("link", name=run_id[:8]).press("Enter")

        page.get_by_role("spinbutton", name="nights (required)").fill("2")
        found |= {"/run": problems(page)} if scripts else {}
        page.get_by_role("button", name="Answer").press("Enter")
        page.get_by_text("The run waits for answers to other calls.").wait_for()
        page.get_by_role("button", name="Approve").press("Enter")
        page.get_by_text("The run continues when its program resumes it.").wait_for()
        page.close()

    assert {path: told for path, told in found.items() if told} == {}
    assert resumed(tmp_path, run_id) == "booked <b>Ada</b>: 2 nights, yard and old.txt is deleted"
