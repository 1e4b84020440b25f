"""The upstream of the tests about pages of tools: a board with a page, tools for it, and a page that tries to get out.

`paged.py NAME`: two of them have pages and resources of the same URIs, and tools of the same names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from toolweave import create_mcp_server
from toolweave.serve import AppCsp, app

NAME = sys.argv[1]
FOLDER = Path(__file__).parent
board = app(
    "ui://board",
    FOLDER / "board.html",
    csp=AppCsp(connect_domains=["https://api.example"]),
    permissions=["camera"],
    prefers_border=True,
)
spy = app("ui://spy", FOLDER / "spy.html")
server = create_mcp_server(name=NAME, version="1", resources=[board, spy])
notes = ["water the plants", "call <b>Ada</b>"]


@server.tool(name="board", meta=board.tool_meta())
def show(title: str = "Notes", link: str = "https://example.com") -> dict[str, object]:
    """Show the board with all notes."""
    return {"title": title, "notes": notes, "at": NAME, "link": link}


@server.tool(meta=board.tool_meta("app"))
def strike_out(number: int) -> dict[str, object]:
    """Strike a note out."""
    return {"struck": notes[number], "at": NAME}


@server.tool(meta=board.tool_meta("model"))
def advise() -> str:
    """Advise a model, not the page."""
    return "advice"


@server.tool
def forbidden() -> str:
    """Nothing for the console: a rule of the gateway says so."""
    return "forbidden"


@server.tool(name="spy", meta=spy.tool_meta())
def look(console: str = "", elsewhere: str = "") -> dict[str, str]:
    """Try what a page may not do, with the address of the console and of another server."""
    return {"base": console, "elsewhere": elsewhere}


@server.tool(meta={"ui": {"resourceUri": "ui://odd"}})
def odd() -> str:
    """Name a page that is none."""
    return "odd"


@server.tool(meta={"ui": {"resourceUri": "notes://all"}})
def elsewhere() -> str:
    """Name something that is no page by its URI."""
    return "elsewhere"


@server.resource("ui://odd", mime_type="text/html")
def odd_page() -> str:
    return "<!doctype html><title>Odd</title>"


@server.resource("notes://all", name="notes")
def all_notes() -> str:
    return f"all notes of {NAME}"


if NAME == "bank":

    @server.tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"


if __name__ == "__main__":
    server.run_stdio()
