"""A gateway that is asked to end loses no request that a client was let send."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.running import RunningGateway, gateway, until, upstream, write_gateway_config
from tests.serve.exchanges import call_body, modern_headers

pytestmark = pytest.mark.slow

SECONDS = 60


def call(connection: http.client.HTTPConnection, tool: str, arguments: dict[str, Any]) -> tuple[Any, bool]:
    """Call a tool on a connection; return the result, and whether the connection stays."""
    connection.request("POST", "/mcp", call_body(tool, arguments), modern_headers(tool))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    return body["result"], answer.getheader("connection") != "close"


def client_of(running: RunningGateway) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(running.base.partition("://")[2], timeout=SECONDS)


def end_under_load(running: RunningGateway, load: Callable[[int, RunningGateway], None], answered: list[int]) -> None:
    """Ask a gateway to end once each of these threads of callers has had a few answers, and wait for all of them."""
    threads = [threading.Thread(target=load, args=(number, running)) for number in range(len(answered))]
    for thread in threads:
        thread.start()
    until(lambda: min(answered) > 3, "the load")
    running.terminate()
    for thread in threads:
        thread.join(SECONDS)
    assert running.process.wait(SECONDS) == 0


def test_every_request_on_a_kept_connection_is_answered_until_it_is_closed(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    answered, failed = [0] * 8, list[BaseException]()

    def load(number: int, running: RunningGateway) -> None:
        connection = client_of(running)
        try:
            while True:
                result, stays = call(connection, "a_add", {"a": 1, "b": number})
                assert result["structuredContent"] == {"sum": 1 + number}
                answered[number] += 1
                if not stays:  # a client that was told does not use the connection again
                    return
        except BaseException as error:
            failed.append(error)

    with gateway(tmp_path, config, drain=3) as running:
        end_under_load(running, load, answered)

    assert failed == []


def test_while_it_drains_it_takes_new_connections_and_says_that_it_is_not_ready(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, drain=30) as running:
        idle = client_of(running)
        assert call(idle, "a_add", {"a": 1, "b": 2})[1]
        running.terminate()
        until(lambda: running.spoken("GET", "/readyz").status == 503, "draining")

        assert running.spoken("GET", "/readyz").json["draining"] is True
        assert running.spoken("GET", "/healthz").status == 200
        result, stays = call(idle, "a_add", {"a": 1, "b": 2})
        assert (result["structuredContent"], stays) == ({"sum": 3}, False)
        running.terminate()  # a second signal does not wait any longer
        assert running.process.wait(SECONDS) == 0


def test_a_call_that_runs_is_answered_before_the_end(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    results: list[Any] = []
    with gateway(tmp_path, config, drain=0) as running:
        thread = threading.Thread(
            target=lambda: results.append(call(client_of(running), "a_hold", {"name": "x"})), daemon=True
        )
        thread.start()
        until((tmp_path / "x.running").exists, "the call")
        running.terminate()
        time.sleep(0.3)
        assert running.process.poll() is None
        (tmp_path / "x.release").touch()
        thread.join(SECONDS)
        assert running.process.wait(SECONDS) == 0

    assert results[0][0]["content"][0]["text"] == "held by version 1"


def test_a_request_on_a_connection_that_was_accepted_last_is_answered_after_the_port_is_closed(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config, drain=2) as running:
        accepted = [client_of(running) for _ in range(20)]
        for one in accepted:
            one.connect()  # as a balancer does, just before it sends the request
        running.terminate()
        until(lambda: is_refused(running), "the closed port")
        answers = [call(one, "a_add", {"a": 1, "b": 2}) for one in accepted]
        assert running.process.wait(SECONDS) == 0

    assert [(result["structuredContent"], stays) for result, stays in answers] == [({"sum": 3}, False)] * 20


def test_every_connection_that_is_accepted_while_the_port_is_closed_is_answered(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    answered, failed = [0] * 32, list[BaseException]()

    def load(number: int, running: RunningGateway) -> None:
        try:
            while True:
                one = client_of(running)
                try:
                    one.connect()
                except ConnectionRefusedError:  # a balancer sends the request to another replica
                    return
                result, _ = call(one, "a_add", {"a": 1, "b": number})
                assert result["structuredContent"] == {"sum": 1 + number}
                answered[number] += 1
                one.close()
        except BaseException as error:
            failed.append(error)

    with gateway(tmp_path, config, drain=1) as running:
        end_under_load(running, load, answered)

    assert failed == []


def is_refused(running: RunningGateway) -> bool:
    """Whether a gateway accepts no connection."""
    one = client_of(running)
    try:
        one.connect()
    except ConnectionRefusedError:
        return True
    finally:
        one.close()
    return False
