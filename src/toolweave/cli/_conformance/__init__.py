"""The conformance of a server to the protocol: seventeen boxes, for any server.

`evidence` sends the requests; `definitions`, `answers` and `protocol` judge the answers; `boxes` lists and orders the
judgements. Only `evidence` knows a connection; no module prints.
"""

from __future__ import annotations

__all__: list[str] = []
