"""docs/cli.md is what the command says of itself."""

from __future__ import annotations

import pytest

from tests.docs.cli_reference import PAGE, commands, reference


@pytest.mark.slow
def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run scripts/docs"


def test_commands_are_read_from_a_boxed_and_from_a_plain_list() -> None:
    boxed = "─ Commands ─╮\n│ tools   Show.           │\n│         more            │\n│ call    Call.           │\n"
    plain = "Commands:\n  tools  Show.\n  call   Call.\n"

    assert commands(boxed) == commands(plain) == ["tools", "call"]
