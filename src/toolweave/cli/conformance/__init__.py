"""How well a server keeps to the protocol: the seventeen boxes of requirement R106, for any server.

`evidence` asks the server, carefully; `definitions`, `answers` and `protocol` judge what it said; `boxes` lists and
orders the judgements. Only `evidence` knows a connection; nothing here prints.
"""

from __future__ import annotations

__all__: list[str] = []
