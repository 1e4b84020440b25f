"""Arguments of calls through a gateway, made to fit the schemas of their tools before anything reads them.

Servers and clients do the same with the calls that they answer and send. Rules, the caches and the log of a gateway
then see the arguments that the upstream gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

from toolweave._json_types import as_object
from toolweave.config import ServerConfig
from toolweave.connect import McpConnection
from toolweave.gateway._callers.gateways import CallerGateways
from toolweave.hub import Hub
from toolweave.protocol import methods
from toolweave.protocol.component_meta import asked_version
from toolweave.schema import Validator
from toolweave.schema.fitting import NO_OBJECT, Arguments, fitted
from toolweave.schema.validate import UsableValidators
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json, with_object
from toolweave.tools import ToolSpec


class FittedArguments(NamedTuple):
    """Arguments that were made to fit, and the kinds of changes."""

    arguments: Arguments
    changes: tuple[str, ...]


class ArgumentFitter:
    """Makes arguments fit that nearly do, as the entries of their servers say."""

    def __init__(self) -> None:
        self._validators = UsableValidators()

    def check(self, spec: ToolSpec, config: ServerConfig) -> Validator | None:
        """Return the validator whose schema the arguments of a tool are made to fit; None if they stay as they are."""
        if not config.validate_input:
            return None
        if not config.repair_arguments:
            return None
        return self._validators.of(spec.input_schema)

    def fitted(
        self, spec: ToolSpec, config: ServerConfig, params: Mapping[str, Any], arguments: Arguments
    ) -> FittedArguments | None:
        """Return the arguments of a call as the schema of its tool has them.

        None if they fit, if they cannot be made to fit, or if the owner of the server wants them as they are.

        Args:
            spec: The tool, as its caller sees it.
            config: The server.
            params: The parameters of the call.
            arguments: Its arguments.
        """
        # Another version may have another schema, which only its server has; rules hold for every version.
        if asked_version(params) not in (None, spec.version) and spec.shape is None:
            return None
        check = self.check(spec, config)
        if check is None:
            return None
        if check.is_valid(arguments):
            return None
        found = fitted(check, arguments)
        if found is None:
            return None
        return FittedArguments(*found)

    def with_object(self, request: Request, connection: McpConnection, name: str) -> Request:
        """Return a request whose `arguments` are an object, the one that is meant if they are not.

        Args:
            request: The request.
            connection: The connection to its server, whose entry has the switch, and which gets the report.
            name: The server's name of the tool or prompt.
        """
        if not connection.config.repair_arguments:
            return request
        made = with_object(request)
        if made is not request and request.params["arguments"] is not None:
            connection.gateway_side.note_arguments(name, (NO_OBJECT.problem,))
        return made


class FittingLayer:
    """Middleware that makes the arguments of calls fit before other middleware reads them.

    A rule about `count > 3` would not see the number in the text "5", which the upstream gets as a number.

    Args:
        fitter: Makes them fit.
        hub: The connections of all callers.
        callers: The connections of single callers, to servers that are called as them.
    """

    reads_results = False
    sees_plain_calls = False  # a call that is sent at once has arguments that fit

    def __init__(self, fitter: ArgumentFitter, hub: Hub, callers: CallerGateways) -> None:
        self._fitter = fitter
        self._hub = hub
        self._callers = callers

    def __call__(self, request: Request, call_next: CallNext) -> Awaitable[Json]:
        """Answer a request, a call with the arguments that its upstream will get."""
        if request.method == methods.TOOLS_CALL:
            return call_next(self._with_fitted_arguments(request))
        return call_next(request)

    def _with_fitted_arguments(self, request: Request) -> Request:
        if not request.params.get("arguments"):
            return request
        spec = _called(request)
        if spec is None:
            return request
        if spec.server is None:  # a tool of this process, which repairs its arguments itself
            return request
        connection = self._connection(spec.server, request)
        if connection is None:
            return request
        if not isinstance(request.params["arguments"], dict):
            request = self._fitter.with_object(request, connection, spec.original_name)
        arguments = as_object(request.params.get("arguments"))
        if not arguments:
            return request
        found = self._fitter.fitted(spec, connection.config, request.params, arguments)
        if found is None:
            return request
        connection.gateway_side.note_arguments(spec.original_name, found.changes)
        return request.replace(params={**request.params, "arguments": found.arguments})

    def _connection(self, server: str, request: Request) -> McpConnection | None:
        """Return the connection of a server, the caller's own where it is called as its callers."""
        shared = self._hub.clients.get(server)
        if shared is not None:
            return shared
        inner = self._callers.known(request)
        if inner is None:
            return None
        return inner.hub.clients.get(server)


def _called(request: Request) -> ToolSpec | None:
    """Return the tool that a request calls, as its caller sees it, or None."""
    name = request.params.get("name")
    if request.server is None or not isinstance(name, str):
        return None
    return request.server.find_tool(name)
