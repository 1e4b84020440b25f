"""Authorization of HTTP requests (OAuth 2.1 resource server): tokens, proofs of possession, scopes, challenges.

A token never leaves this folder: handlers, results, logs and errors see the identity only, and nothing forwards it.
"""

from __future__ import annotations

__all__: list[str] = []
