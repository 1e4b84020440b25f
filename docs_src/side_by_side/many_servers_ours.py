from toolweave.sync import connect_mcp_servers

config = {
    "mcpServers": {
        "home": {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]},
        "work": {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]},
    }
}

with connect_mcp_servers(config) as hub:
    for tool in hub.tools:
        print(tool.name)
    result = hub.execute("home_add_note", {"text": "Water the plants."})
    print(result.structured_content)
