"""List the tools of the servers; or call one: `TOOL '{"argument": "value"}'`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from toolweave import CallContext, ConfigError, ToolCall

from .client import connect_servers


async def run(name: str | None, arguments: dict[str, Any]) -> int:
    async with connect_servers() as clients:
        for server, error in clients.hub.errors.items():
            print(f"{server}: {error}", file=sys.stderr)
        if name is None:
            for spec in clients.tools.snapshot():
                print(spec.name, spec.description or "", sep="\t")
            return 0
        call = ToolCall(name=name, arguments=arguments)
        result = await clients.tools.call(call, CallContext())
        print(result.text)
        return 1 if result.is_error else 0


def json_object(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", nargs="?", help="the tool to call")
    parser.add_argument("arguments", nargs="?", default="{}", type=json_object)
    options = parser.parse_args()
    try:
        return asyncio.run(run(options.tool, options.arguments))
    except ConfigError as error:
        print(error, file=sys.stderr)
        if error.server is None:  # the file, not an entry
            print("`toolweave init` writes an example", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
