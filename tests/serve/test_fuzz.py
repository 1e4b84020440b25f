"""Ten thousand messages, right and wrong, to one server process and one HTTP endpoint: nothing brings them down.

Whatever comes, a valid call behind it is answered; nothing that came is answered twice, with a traceback, or with
HTTP 500.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from queue import Empty, SimpleQueue
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.serve.garbage import ENDLESS, METHODS, TOOLS, texts
from tests.serve.program import program
from tests.serve.raw import ENVELOPE, LEGACY, MODERN, Json
from tests.serve.serving import served_http
from toolweave.protocol.meta import LOG_LEVEL, PROTOCOL_VERSION

pytestmark = [pytest.mark.slow, pytest.mark.unmeasured]  # quick tests run the same code, one message at a time

ROUND = 10
"""Messages between two valid calls."""
STDIO_ROUNDS = 200
HTTP_ROUNDS = 200
SECONDS = 60
"""The bound of every wait; a server that needs longer hangs."""

steady = settings(
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # the state of the server is part of a failure; nothing can be shrunk
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    print_blob=False,
)


def key_of(value: Any) -> str:
    return json.dumps(value)  # 1, "1" and true are three


def ids_in(text: bytes) -> Iterator[str]:
    """Yield every id that a text may be answered by."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    for one in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if isinstance(one, dict) and "id" in one:
            yield key_of(cast("Json", one)["id"])


class Answers:
    """A request and its answer."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()

    def ask(self, text: bytes) -> None:
        self._asked.update(ids_in(text))

    def check(self, text: bytes) -> list[Json]:
        """Return the messages in a text of the server; each must be one that it may send."""
        assert b"Traceback" not in text
        assert b'File "' not in text
        value = json.loads(text)
        found = cast("list[Json]", value) if isinstance(value, list) else [cast("Json", value)]
        assert found
        for one in found:
            assert one["jsonrpc"] == "2.0"
            if "method" in one:
                continue
            assert ("result" in one) is not ("error" in one), one
            if "error" in one:
                assert isinstance(one["error"]["code"], int)
                assert isinstance(one["error"]["message"], str)
            if one["id"] is not None:
                key = key_of(one["id"])
                self._answered[key] += 1
                assert self._answered[key] <= self._asked[key], f"{key} is answered more often than asked"
        return found


class Process:
    """A server process behind its pipes."""

    def __init__(self, version: str) -> None:
        self._modern = version == MODERN
        command = [sys.executable, "-m", "tests.serve.program"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin
        stdout = self._process.stdout
        stderr = self._process.stderr
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._answers = Answers()
        self._calls = 0
        self._readers = [
            threading.Thread(target=lambda: [self._lines.put(line) for line in stdout], daemon=True),
            threading.Thread(target=lambda: [None for _ in stderr], daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        if not self._modern:
            params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "f", "version": "0"}}
            self._send(as_request("initialize", params, "hello"))
            self._until("hello")

    def feed(self, texts: list[bytes]) -> None:
        for text in texts:
            self._send(text)
        self._calls += 1
        key = f"valid call {self._calls}"
        params: Json = {"name": "add", "arguments": {"a": self._calls, "b": 1}}
        self._send(as_request("tools/call", params | ({"_meta": ENVELOPE} if self._modern else {}), key))
        answer = self._until(key)
        assert answer["result"]["content"] == [{"type": "text", "text": str(self._calls + 1)}]

    def stop(self) -> None:
        self._stdin.close()
        assert self._process.wait(SECONDS) == 0
        for reader in self._readers:
            reader.join(SECONDS)
        while True:
            try:
                self._answers.check(self._lines.get_nowait())
            except Empty:
                break
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self, text: bytes) -> None:
        self._answers.ask(text)
        self._stdin.write(text + b"\n")
        self._stdin.flush()

    def _until(self, key: str) -> Json:
        while True:
            for one in self._answers.check(self._lines.get(timeout=SECONDS)):
                if one.get("id") == key:
                    return one


@contextmanager
def running(version: str) -> Generator[Process, None, None]:
    process = Process(version)
    try:
        yield process
        process.stop()
    finally:
        process.kill()


def as_request(method: str, params: Json, key: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": key, "method": method, "params": params}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2025-03-26", LEGACY, MODERN])
def test_a_server_process_survives_whatever_comes_on_its_input(version: str) -> None:
    methods = METHODS + ENDLESS

    with running(version) as server:

        @settings(steady, max_examples=STDIO_ROUNDS)
        @given(st.lists(texts(modern=version == MODERN, methods=methods), min_size=ROUND, max_size=ROUND))
        def fuzz(texts: list[bytes]) -> None:
            server.feed(texts)

        fuzz()


# HTTP


headers = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain", ""]),
        "Accept": st.sampled_from(["application/json, text/event-stream", "*/*", "text/html", ""]),
        "MCP-Protocol-Version": st.sampled_from([MODERN, LEGACY, "2025-06-18", "1999-01-01", "", "x" * 500]),
        "Mcp-Method": st.sampled_from([*METHODS[:8], "", "=?base64?!!?="]),
        "Mcp-Name": st.sampled_from([*TOOLS, "", "=?base64?YWRk?=", "x" * 3000]),
        "Mcp-Session-Id": st.sampled_from(["", "nobody", "0" * 500]),
        "Last-Event-ID": st.sampled_from(["", "1", "x"]),
        "Origin": st.sampled_from(["null", "http://evil.test", "http://127.0.0.1"]),
        "Authorization": st.sampled_from(["", "Bearer x", "Basic \xff"]),
    },
)
RIGHT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
VERBS = ("POST",) * 12 + ("GET", "DELETE", "PUT", "OPTIONS")


class Endpoint:
    """An HTTP endpoint: requests go there one after the other over one connection, in one session if any."""

    def __init__(self, url: str, *, modern: bool) -> None:
        self._url = urlsplit(url)
        self._modern = modern
        self._connection = http.client.HTTPConnection(self._url.netloc, timeout=SECONDS)
        self._calls = 0
        self._session: dict[str, str] = {}
        self.statuses: Counter[int] = Counter()

    def close(self) -> None:
        self._connection.close()

    def feed(self, made: list[tuple[bytes, dict[str, str], bool, str]]) -> None:
        for text, odd, right, verb in made:
            fitting = RIGHT | (matching(text) if self._modern else self._session)
            status, body, kind = self._post(text, fitting if right else fitting | odd, verb)
            assert status < 500, (status, body, text, odd)
            assert b"Traceback" not in body
            assert b'File "' not in body
            for message in messages_in(body, kind):
                answers = Answers()
                answers.ask(text)
                answers.check(message)
        self._calls += 1
        assert self._call() == str(self._calls + 1)

    def _call(self) -> str:
        params: Json = {"name": "add", "arguments": {"a": self._calls, "b": 1}}
        call = as_request("tools/call", params | ({"_meta": ENVELOPE} if self._modern else {}), f"call {self._calls}")
        status, body, kind = self._post(call, RIGHT | (matching(call) if self._modern else self._session))
        if not self._modern and (not self._session or status == 404):  # ended by a DELETE that was made up
            self._begin()
            return self._call()
        assert status == 200, body
        (message,) = messages_in(body, kind)
        return json.loads(message)["result"]["content"][0]["text"]

    def _begin(self) -> None:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "f", "version": "0"}}
        status, _, _ = self._post(as_request("initialize", params, "hello"), RIGHT)
        assert status == 200
        self._session = {"Mcp-Session-Id": self._answer.headers["Mcp-Session-Id"], "MCP-Protocol-Version": LEGACY}
        note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        assert self._post(note, RIGHT | self._session)[0] == 202

    def _post(self, body: bytes, headers: dict[str, str], verb: str = "POST") -> tuple[int, bytes, str]:
        try:
            self._connection.request(verb, self._url.path, body, headers)
            answer = self._connection.getresponse()
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):  # closed behind a refusal
            self._connection.close()
            self._connection.request(verb, self._url.path, body, headers)
            answer = self._connection.getresponse()
        self._answer = answer
        self.statuses[answer.status] += 1
        kind = answer.headers.get("Content-Type", "")
        if verb == "GET" and answer.status == 200:  # a stream without an end
            self._connection.close()
            return answer.status, b"", kind
        return answer.status, answer.read(), kind


def matching(text: bytes) -> dict[str, str]:
    """Return the headers that a message of the stateless era asks for."""
    try:
        message: Any = json.loads(text)
        params = message["params"]
        found = {"MCP-Protocol-Version": params["_meta"][PROTOCOL_VERSION], "Mcp-Method": message["method"]}
        if "name" in params or "uri" in params:
            found["Mcp-Name"] = params.get("name", params.get("uri"))
    except (ValueError, RecursionError, TypeError, KeyError):
        return {}
    sound = all(isinstance(value, str) and value.isascii() and value.isprintable() for value in found.values())
    return found if sound else {}


def messages_in(body: bytes, kind: str) -> list[bytes]:
    """Return the JSON texts of a response."""
    if kind.startswith("text/event-stream"):
        lines = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
        return [line for line in lines if line]
    return [body] if kind.startswith("application/json") and body else []


@pytest.mark.slow
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_an_http_endpoint_survives_whatever_is_posted(modern: bool) -> None:
    made = st.tuples(texts(modern=modern), headers, st.integers(0, 2).map(bool), st.sampled_from(VERBS))

    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        url = stack.enter_context(portal.wrap_async_context_manager(served_http(program())))
        endpoint = stack.enter_context(closing(Endpoint(url, modern=modern)))

        @settings(steady, max_examples=HTTP_ROUNDS)
        @given(st.lists(made, min_size=ROUND, max_size=ROUND))
        def fuzz(made: list[tuple[bytes, dict[str, str], bool, str]]) -> None:
            endpoint.feed(made)

        fuzz()
        assert endpoint.statuses[200] > HTTP_ROUNDS  # much of it was good enough to be answered


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_what_once_brought_an_endpoint_down_is_answered(modern: bool) -> None:
    odd: Json = {"_meta": ENVELOPE | {LOG_LEVEL: [{}]}, "name": "add", "arguments": {"a": 1, "b": 1}}
    found: list[tuple[bytes, dict[str, str], bool, str]] = [
        (as_request("tools/call", odd, 1), {}, True, "POST"),  # a list where a name is looked up
        (b"", {"Last-Event-ID": "x"}, False, "GET"),  # comes back for events that nobody keeps
    ]
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        url = stack.enter_context(portal.wrap_async_context_manager(served_http(program())))
        endpoint = stack.enter_context(closing(Endpoint(url, modern=modern)))
        endpoint.feed([])
        endpoint.feed(found)
