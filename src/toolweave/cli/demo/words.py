"""The demo server `words`: text tools, revision 2026-07-28; in the process of the demo, over stdio as a program."""

from __future__ import annotations

import anyio

from toolweave._json_types import Json
from toolweave.cli.demo import READ_ONLY, arguments_schema
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, tool

__all__ = ["words_server"]


_TEXT = {"type": "string", "description": "The text to count"}
_WORD = {"type": "string", "description": "The word to spell", "maxLength": 50}


@tool(input_schema=arguments_schema({"text": _TEXT}, required=("text",)), annotations=READ_ONLY)
async def count(arguments: Json) -> Json:
    """Count words and characters."""
    text: str = arguments["text"]
    return {"words": len(text.split()), "characters": len(text)}


def words_server(*, pause: float = 0.1) -> McpServer:
    """Return a server of text tools; `pause` is how many seconds `spell` takes for each letter."""

    @tool(input_schema=arguments_schema({"word": _WORD}, required=("word",)), annotations=READ_ONLY)
    async def spell(arguments: Json, ctx: CallContext) -> str:
        """Spell a word, slowly, with progress."""
        word: str = arguments["word"]
        for done, letter in enumerate(word, start=1):
            await anyio.sleep(pause)
            await ctx.progress(done, len(word), letter)
        return "-".join(word.upper())

    server = create_mcp_server("toolweave-demo-words", "1.0.0", tools=[count, spell], ttl_ms=60_000)
    server.speak(MODERN_VERSION)
    return server


if __name__ == "__main__":
    words_server().run()
