"""An authorization server in front of a company's identity provider, which registers no MCP clients itself.

MCP clients register here, by a document at their own URL or dynamically; a person consents to each of them; then the
person signs in at the provider, for which this server is one single client. The tokens that clients get are this
server's own, for its one resource: nothing of the provider ever leaves it.

`authorize.py` is the way of a browser, `tokens.py` that of a client; `grants.py` and `clients.py` are what is kept of
them, in a store that all replicas share; `upstream.py` is the provider.
"""

from __future__ import annotations

__all__: list[str] = []
