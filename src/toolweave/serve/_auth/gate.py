"""The gate in front of single operations: a request whose token lacks a scope is answered with 403 (step-up)."""

# It runs before the request, in every revision and for every kind of HTTP request, because a challenge is an HTTP
# header: it cannot be sent after a stream has begun.

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from toolweave._json_types import JsonObject
from toolweave.serve._auth.middleware import AuthorizesTokens, challenges_for, identity_of, scheme_of
from toolweave.serve._auth.refusal import Refusal
from toolweave.serve._http.asgi import Scope
from toolweave.serve.request import FindOffers

_log = logging.getLogger("toolweave.serve._auth")

_NO_AUTH = "This needs scopes, and the server was started without authorization (auth=), so no caller has them"


class OperationGate:
    """Refuses operations for which the token of a request lacks a scope.

    Args:
        offers: Returns the offers that a request uses.
        auth: The authorization; without one, any operation that needs scopes is refused.

    Attributes:
        authorizes: Whether requests have an identity.
        rules_of_tools: The scopes that tools need beside those that their own definitions name.
    """

    def __init__(self, offers: FindOffers, auth: AuthorizesTokens | None) -> None:
        self._offers = offers
        self._auth = auth
        self.authorizes: bool = auth is not None
        self.rules_of_tools: Mapping[str, Sequence[str]] = {} if auth is None else auth.access.rules.tools

    def refusal(self, scope: Scope, operations: Iterable[tuple[str, JsonObject]]) -> Refusal | None:
        """Return the refusal of a request, given the method and params of each of its messages; None to let it pass.

        It names all the scopes that the operations need, those of the endpoint among them (MCP, step-up).
        """
        needed: list[str] = []
        for method, params in operations:
            for offer in self._offers(method, params):
                if self._auth is None:
                    needed += offer.scopes
                else:
                    needed += self._auth.access.rules.required(*offer[:3])
        if not needed:
            return None
        if self._auth is None:
            _log.warning("refused a request: %s", _NO_AUTH)
            return Refusal(status=403, error="access_denied", description=_NO_AUTH)
        identity = identity_of(scope)
        scopes: tuple[str, ...] = ()
        if identity is not None:
            scopes = identity.scopes
        granted = self._auth.access.granted(scopes)
        if granted.issuperset(needed):
            return None
        every = tuple(dict.fromkeys([*self._auth.required_scopes, *needed]))
        return challenges_for(self._auth, scope).insufficient_scope(every, scheme=scheme_of(scope))
