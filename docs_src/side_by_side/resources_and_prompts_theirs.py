from fastmcp import FastMCP

mcp = FastMCP("notes")


@mcp.resource("notes://{number}")
def note(number: int) -> str:
    """One note."""
    return f"This is note {number}."


@mcp.prompt
def review(topic: str) -> str:
    """Ask for a review."""
    return f"Review my notes about {topic}."


if __name__ == "__main__":
    mcp.run()
