"""The terminal: `toolweave tools | call | resources | prompts | status | doctor | init | demo`.

Job: read what a person typed, call the library, show what came back. Refuses to know anything a
library user could not reach: every behaviour behind a command lives in another room.
"""

from __future__ import annotations

__all__: list[str] = []
