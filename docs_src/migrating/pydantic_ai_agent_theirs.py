import json
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.mcp import load_mcp_toolsets
from pydantic_ai.models.test import TestModel

entry = {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}
Path("numbers.json").write_text(json.dumps({"mcpServers": {"numbers": entry}}), encoding="utf-8")

model = TestModel(call_tools=["numbers_add"])
agent = Agent(model, instructions="Be brief.", toolsets=load_mcp_toolsets("numbers.json"))

result = agent.run_sync("What is the sum?")
print(result.output)
