from toolweave import create_mcp_server

server = create_mcp_server("notes")


@server.resource("notes://{number}")
def note(number: int) -> str:
    """One note."""
    return f"This is note {number}."


@server.prompt
def review(topic: str) -> str:
    """Ask for a review."""
    return f"Review my notes about {topic}."


if __name__ == "__main__":
    server.run()
