"""The limits of a model's API, and others in their place."""

from __future__ import annotations

from toolweave.models import OpenAICompatibleModel, ToolRules
from toolweave.tools import ToolSpec

tools = [ToolSpec(name=f"tool_{number}") for number in range(300)]
url = "https://api.openai.com/v1"

known = OpenAICompatibleModel(url, model="gpt-5.1", api_key="...")
own = OpenAICompatibleModel(url, model="gpt-5.1", api_key="...", tool_schemas=ToolRules(max_tools=256))
for model in (known, own):
    print(len(model.wire_tools(tools).definitions), "tools")
