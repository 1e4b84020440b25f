"""What a string stands for."""

from __future__ import annotations

import os

from toolweave import ConfigError
from toolweave.models import model_from

os.environ["ANTHROPIC_API_KEY"] = os.environ["OPENAI_API_KEY"] = "not a real key"
os.environ.pop("GROQ_API_KEY", None)
for name in (
    "anthropic:claude-sonnet-4-5",
    "openai:gpt-5.1",
    "http://localhost:8080/v1#qwen3",
    "command",
    "anthropic:claude-sonnet-4-5 | ollama:qwen3",
):
    model = model_from(name)
    print(f"{type(model).__name__:22} {model.name}")

for name in ("gpt-5.1", "http://localhost:8080/v1", "groq:qwen3"):
    try:
        model_from(name)
    except ConfigError as error:
        print(error)
