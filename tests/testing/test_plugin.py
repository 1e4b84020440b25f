"""The pytest plugin, in pytest runs of their own."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

import toolweave.testing
from tests.leftovers import processes

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]

ECHO = """
    import anyio, os, sys, pytest
    from toolweave import connect_mcp, ProtocolError
    from toolweave.testing import stdio_server_command

    def use(target, *texts):
        async def main():
            with anyio.fail_after(30):
                async with connect_mcp(target) as connection:
                    return [(await connection.call_tool("echo", {"text": text})).text for text in texts]
        return anyio.run(main)
"""


def run(pytester: pytest.Pytester, *args: str, **outcomes: int) -> str:
    """Run pytest on what the test wrote; return what it printed."""
    others = ("-p", "no:cacheprovider", "-p", "no:langsmith_plugin")  # plugins of other packages are not the subject
    result = pytester.runpytest_subprocess(*others, *args, timeout=120)
    result.assert_outcomes(**outcomes)
    return result.stdout.str()


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    points = {point.name: point.value for point in importlib.metadata.entry_points(group="pytest11")}

    assert points["toolweave"] == "toolweave.testing.plugin"


def test_the_names_of_the_kit_are_there_when_they_are_asked_for() -> None:
    for name in toolweave.testing.__all__:
        assert getattr(toolweave.testing, name) is not None
        assert name in dir(toolweave.testing)
    module: object = toolweave.testing  # type checkers refuse the name
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(module, "no_such_" + "name")


def test_a_project_that_uses_none_of_it_loads_none_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_it(request):
            heavy = ("toolweave", "mcp", "msgspec", "pydantic")
            loaded = sorted(name for name in sys.modules if name.partition(".")[0] in heavy)
            small = ["_lazy", "testing", "testing.plugin", "version"]
            assert loaded == ["toolweave", *(f"toolweave.{name}" for name in small)]
            assert [name for name in request.fixturenames if "mcp" in name or "fault" in name] == []
    """)

    run(pytester, "-W", "error", passed=1)


def test_the_fixtures_say_what_they_are(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider").stdout.str()

    for name in ("mcp_server", "faulty_stdio", "faulty_http", "fake_clock", "mcp_cassette"):
        assert f"{name} -- " in listed
    assert "--mcp-record" in pytester.runpytest_subprocess("--help").stdout.str()


def test_a_server_in_memory_and_a_clock_come_as_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import anyio
        from toolweave import connect_mcp

        def add(a: int, b: int) -> int:
            return a + b

        def test_it(mcp_server, fake_clock):
            server = mcp_server([add], name="numbers")

            async def main():
                async with connect_mcp(server) as connection:
                    assert (await connection.call_tool("add", {"a": 1, "b": 2})).text == "3"
                await fake_clock.advance(2)
                assert fake_clock.monotonic() == 2

            anyio.run(main)
            assert [call.name for call in server.calls] == ["add"]
    """)

    run(pytester, passed=1)


def test_a_process_that_a_failing_test_left_behind_is_killed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pathlib, subprocess

        def start(command):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\\n')
            process.stdin.flush()
            assert process.stdout.readline()  # it is up, whatever it ignores
            return process

        left = []

        def test_that_fails(faulty_stdio):
            left.append(start(faulty_stdio("ignores_sigterm")))
            left.append(start(faulty_stdio("ignores_eof")))
            assert False

        def test_what_is_left():
            assert [process.wait(30) for process in left] == [-9, -9]
    """)

    run(pytester, passed=1, failed=1)
    assert not [row for row in processes() if "toolweave-test=" in row.command and str(pytester.path) in row.command]


def test_an_http_server_is_stopped_even_if_the_test_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import urllib.error, urllib.request, pytest

        urls = []

        def test_that_fails(faulty_http):
            urls.append(faulty_http("status_429"))
            with pytest.raises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(urllib.request.Request(urls[0], data=b"{}"))
            assert raised.value.code == 0

        def test_what_is_left():
            with pytest.raises(urllib.error.URLError, match="refused"):
                urllib.request.urlopen(urls[0])
    """)

    run(pytester, passed=1, failed=1)


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from toolweave.testing import HTTP_FAULTS, STDIO_FAULTS

        def test_it(faulty_stdio, faulty_http):
            for factory, wrong, hint, modes in (
                (faulty_stdio, "dies_mid_cal", "fault 'dies_mid_cal'; did you mean 'dies_mid_call'", STDIO_FAULTS),
                (faulty_http, "status_428", "HTTP fault 'status_428'; did you mean 'status_42", HTTP_FAULTS),
                (faulty_http, "", "HTTP fault ''. There are: accepted_202, ", HTTP_FAULTS),
            ):
                with pytest.raises(ValueError) as raised:
                    factory(wrong)
                assert hint in str(raised.value)
                assert all(mode in str(raised.value) for mode in modes)
    """)

    run(pytester, passed=1)


def test_a_missing_cassette_is_an_error_that_says_how_to_record_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        ECHO + "\n    def test_it(mcp_cassette):\n        use(mcp_cassette(stdio_server_command()), 'a')"
    )

    printed = run(pytester, failed=1)

    assert "cassettes/test_a_missing_cassette_is_an_error_that_says_how_to_record_it/test_it.jsonl" in printed
    assert "pytest --mcp-record=once" in printed


def test_what_was_recorded_once_is_played_back_without_the_server(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_agent=ECHO
        + """
    @pytest.mark.parametrize("word", ["a/b", "c"])
    def test_it(mcp_cassette, word):
        command = stdio_server_command() if os.environ["SERVER"] else ["no-such-program"]
        assert use(mcp_cassette(command), word) == [word]
        assert use(mcp_cassette(command, name="other"), "x") == ["x"]
        with pytest.raises(ValueError, match="cassette 'other' is in use in this test"):
            mcp_cassette(command, name="other")
    """
    )
    monkeypatch.setenv("SERVER", "1")
    run(pytester, "--mcp-record=once", passed=2)
    folder = pytester.path / "cassettes" / "test_agent"
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(written) == [
        "test_it_a_b-other.jsonl",
        "test_it_a_b.jsonl",
        "test_it_c-other.jsonl",
        "test_it_c.jsonl",
    ]

    monkeypatch.setenv("SERVER", "")
    run(pytester, passed=2)
    run(pytester, "--mcp-record=once", passed=2)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written


def test_recording_anew_replaces_what_was_there(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_agent=ECHO
        + """
    def test_it(mcp_cassette):
        use(mcp_cassette(stdio_server_command()), "new")
    """
    )
    cassette = Path(pytester.path, "cassettes", "test_agent", "test_it.jsonl")
    cassette.parent.mkdir(parents=True)
    cassette.write_text('{"cassette": 0}\n', encoding="utf-8")

    run(pytester, "--mcp-record=new", passed=1)

    lines = [json.loads(line) for line in cassette.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["cassette"] == 1
    assert '"text": "new"' in json.dumps(lines)


def test_a_request_without_a_recording_fails_the_test_even_if_the_agent_took_it_well(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_agent=ECHO
        + """
    def test_it(mcp_cassette):
        target = mcp_cassette(stdio_server_command())
        try:
            use(target, os.environ["WORD"])
        except ProtocolError:
            pass
    """
    )
    monkeypatch.setenv("WORD", "recorded")
    run(pytester, "--mcp-record=once", passed=1)

    monkeypatch.setenv("WORD", "other")
    printed = run(pytester, passed=1, errors=1)

    assert 'has no tools/call {"name": "echo", "arguments": {"text": "other"}}; the nearest' in printed
