"""Plain code that many threads run, such as the views of a Django application."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

from toolweave.sync import SyncConnection, connect_mcp


@cache
def numbers() -> SyncConnection:
    return connect_mcp("python -m toolweave.cli.demo.numbers")


def view(value: int) -> str:
    return numbers().call_tool("add", {"values": [value, 1]}).text


with numbers(), ThreadPoolExecutor(4) as threads:
    print(*threads.map(view, range(4)), sep="\n")
