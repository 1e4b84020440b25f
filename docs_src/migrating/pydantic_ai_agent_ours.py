import json
from pathlib import Path

from pydantic_ai.models.test import TestModel

from toolweave import Agent
from toolweave.models import PydanticAIModel

entry = {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}
Path("numbers.json").write_text(json.dumps({"mcpServers": {"numbers": entry}}), encoding="utf-8")

model = PydanticAIModel(TestModel(call_tools=["numbers_add"]))  # any model of theirs, or "openai:gpt-5.1"
agent = Agent(model, system="Be brief.", mcp_servers="numbers.json")

result = agent.run_sync("What is the sum?")
print(result.text)
