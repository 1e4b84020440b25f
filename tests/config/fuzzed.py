"""Config files of strangers, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

from tests.fuzz.inputs import choice
from toolweave.config import load_config
from toolweave.config._documents import parse_document
from toolweave.config._frontmatter import split_frontmatter
from toolweave.errors import ConfigError

CONFIG_NAMES = ("mcp.json", "mcp.yaml", "config.toml", "settings.jsonc", "mcp")


def configs(data: bytes) -> None:
    """Config files of every dialect, and the YAML on top of prompts in Markdown."""
    kind, body = choice(data, len(CONFIG_NAMES) + 1)
    text = body.decode("utf-8", "replace")
    if kind == len(CONFIG_NAMES):
        try:
            split_frontmatter(text)
        except ValueError:
            pass
        return
    try:
        load_config(parse_document(text, path=CONFIG_NAMES[kind]).value, env={})
    except ConfigError:
        pass
