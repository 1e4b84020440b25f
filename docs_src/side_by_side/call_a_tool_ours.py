from toolweave import create_mcp_server
from toolweave.sync import connect_mcp

server = create_mcp_server("geometry")


@server.tool
def area(width: float, height: float) -> float:
    """Return the area of a rectangle."""
    return width * height


with connect_mcp(server) as client:
    result = client.call_tool("area", {"width": 3, "height": 4})
    print(result.data)
