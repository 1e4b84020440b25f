"""The terminal: `toolweave tools | call | resources | prompts | status | doctor | chat | serve | worker | init ...`.

Job: read what a person typed, call the library, show what came back. Refuses to know anything a
library user could not reach: every behaviour behind a command lives in another room. What only a terminal is for stays
here: editors' files and a process that is replaced (`serve`), the checklist of a server (`conformance`).
"""

from __future__ import annotations

__all__: list[str] = []
