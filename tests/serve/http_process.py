"""A server over HTTP in its own process: `http_process.py OPTIONS-AS-JSON`; its first line is its address.

The tool `hold` says that it runs, and answers once the file FOLDER/release is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from toolweave import tool
from toolweave.serve import create_mcp_server
from toolweave.serve._http.app import HttpLimits
from toolweave.tools import CallContext


def main(folder: Path, keys: list[str], limits: dict[str, Any], **options: Any) -> None:
    """Serve until a signal."""

    async def hold(ctx: CallContext) -> str:
        """Wait for the file."""
        await ctx.progress(1, total=2)
        while not (folder / "release").exists():
            await anyio.sleep(0.02)
        return "held"

    async def confirm(ctx: CallContext) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"hello {(answer.content or {}).get('name')}"

    given: Any = {"request_state_keys": [bytes.fromhex(key) for key in keys]} if keys else {}
    server = create_mcp_server(name="process", version="1", tools=[tool(hold), tool(confirm)], **given)
    server.run_http(port=0, on_started=lambda url: print(url, flush=True), limits=HttpLimits(**limits), **options)
    print("over", flush=True)


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    main(Path(settings.pop("folder")), settings.pop("keys", []), settings.pop("limits", {}), **settings)
