"""An authorization server in front of a company's identity provider, which registers no MCP clients itself.

MCP clients register with it, by a document at their own URL or dynamically; a person consents to each of them; then the
person signs in at the provider, for which this server is one single client. The tokens that clients get are this
server's own, for its one resource: nothing of the provider ever leaves it.

`authorize.py` serves browsers, `tokens.py` clients; `grants.py` and `clients.py` are the records of
them, in a store that all replicas share; `upstream.py` is the provider.
"""

from __future__ import annotations

__all__: list[str] = []
