"""Serve the files of a folder: Python functions, prompts in Markdown, resources and skills."""

import asyncio
import tempfile
from pathlib import Path

from toolweave import connect_mcp, create_mcp_server
from toolweave.serve import folder

FILES = {
    "tools/search.py": '''
from toolweave import tool
from .._notes import NOTES

@tool
def search(word: str) -> list[str]:
    """Find notes by a word."""
    return [note for note in NOTES if word in note]
''',
    "_notes.py": 'NOTES = ["water the plants", "call the bank"]\n',
    "prompts/review.md": """---
description: Ask for a review of some notes.
arguments:
  - name: topic
    description: What the notes are about
  - name: tone
    default: friendly
---
Review my notes about {{topic}}, in a {{tone}} tone.
""",
    "resources/rules.md": "A note has one line.\n",
    "skills/tidy/SKILL.md": "---\nname: tidy\ndescription: Tidy the notes.\n---\nRemove what is done.\n",
    "tools/broken.py": "LIMIT = 10 / 0\n",
}
root = Path(tempfile.mkdtemp())
for name, text in FILES.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)

notes = folder(root)
server = create_mcp_server("notes", folder=notes)  # or folder="notes", a path


async def main() -> None:
    async with connect_mcp(server) as client:
        print((await client.list_tools()).names, (await client.call_tool("search", {"word": "bank"})).text)
        print((await client.get_prompt("review", {"topic": "plants"})).messages[0].content.render())
        print([resource.uri for resource in await client.list_resources()])
        print((await client.read_resource("resource://rules.md"))[0].render().strip())
        print([skill.name for skill in await client.list_skills()])
    print(*notes.problems, sep="\n")


asyncio.run(main())
