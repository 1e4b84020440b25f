"""The client under test of the official conformance suite: `client.py URL`, one function a scenario.

Started the way the suite starts clients: the URL as last argument, the scenario's name and its materials in the
environment. Uses the public names of the package alone, and its default settings but where a scenario says why not;
whatever goes wrong ends it with a traceback and exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from headless import HeadlessUserAgent  # beside this file: the suite starts it as a script

from toolweave import AuthRequiredError, Callbacks, McpConnection, connect_mcp
from toolweave.connect import ElicitationRequest, ElicitationResult, SamplingRequest, SamplingResult
from toolweave.errors import SkillError
from toolweave.oauth import MemoryTokenStore, OAuth

__all__ = ["SCENARIOS", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the suite asks for: the server's URL, and its materials."""

    url: str
    materials: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def connect(self, **settings: Any) -> AbstractAsyncContextManager[McpConnection]:
        """Return the connection to be entered; `settings` are further keys of the server's entry."""
        answers = Callbacks(elicitation=fill_in, sampling=think, roots=[])
        return connect_mcp({"url": self.url, **settings}, callbacks=answers)


def fill_in(request: ElicitationRequest) -> ElicitationResult:
    """Accept a form the way a user does who only presses the button: with what the form says by itself, or consent."""
    properties: Mapping[str, Mapping[str, Any]] = request.schema.get("properties", {})
    return ElicitationResult.accept({name: field.get("default", True) for name, field in properties.items()})


def think(request: SamplingRequest) -> SamplingResult:
    """Say what was said."""
    return SamplingResult(content=request.messages[-1].text, model="echo")


Scenario = Callable[[Task], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, Scenario] = {}
"""The function of each scenario, by the suite's name of it."""


def scenario(*names: str) -> Callable[[Scenario], Scenario]:
    """Register a function for the scenarios of these names."""

    def register(play: Scenario) -> Scenario:
        SCENARIOS.update(dict.fromkeys(names, play))
        return play

    return register


@scenario("initialize", "request-metadata", "json-schema-ref-no-deref")
async def connect_and_list(task: Task) -> None:
    """Connect and list the tools."""
    async with task.connect() as server:
        await server.list_tools()


@scenario("tools_call")
async def call_add_numbers(task: Task) -> None:
    """Call a tool and read its answer."""
    async with task.connect() as server:
        result = await server.call_tool("add_numbers", {"a": 5, "b": 3})
        expect("8" in result.text, f"5 and 3 make {result.text!r}")


@scenario("elicitation-sep1034-client-defaults")
async def answer_a_form(task: Task) -> None:
    """Call a tool that asks the user."""
    async with task.connect() as server:
        result = await server.call_tool("test_client_elicitation_defaults")
        expect("completed" in result.text, f"the answer is {result.text!r}")


@scenario("sep-2322-client-request-state")
async def answer_over_rounds(task: Task) -> None:
    """Call tools that ask in rounds, one that does not, and one whose result does not say what it is; all at once."""
    wanted = {
        "test_mrtr_echo_state": "echo-state-ok",
        "test_mrtr_no_state": "no-state-ok",
        "test_mrtr_unrelated": "unrelated-ok",
        "test_mrtr_no_result_type": "no-result-type-test-ok",
    }

    async def check(name: str) -> None:
        result = await server.call_tool(name)
        expect(result.text == wanted[name], f"{name} answers {result.text!r}")

    async with task.connect() as server, asyncio.TaskGroup() as tasks:
        for name in wanted:
            tasks.create_task(check(name))


@scenario("sse-retry")
async def outlive_a_closed_stream(task: Task) -> None:
    """Call a tool whose stream is closed before the answer."""
    async with task.connect() as server:
        result = await server.call_tool("test_reconnection")
        expect("completed successfully" in result.text, f"the answer is {result.text!r}")


@scenario("http-standard-headers")
async def use_every_kind_of_offer(task: Task) -> None:
    """Use every tool, resource and prompt."""
    async with task.connect() as server:
        for tool in await server.list_tools():
            await call(server, tool.name)
        for resource in await server.list_resources():
            await server.read_resource(resource.uri)
        for prompt in await server.list_prompts():
            await server.get_prompt(prompt.name)


@scenario("http-custom-headers")
async def call_as_told(task: Task) -> None:
    """Make the calls of the materials; one of them gives null for a boolean, so arguments are not checked first."""
    async with task.connect(validate_input=False) as server:
        for wanted in task.materials["toolCalls"]:
            await call(server, wanted["name"], wanted["arguments"])


@scenario("http-invalid-tool-headers")
async def call_what_is_offered(task: Task) -> None:
    """Call every tool that is offered; those with a malformed header annotation must not be."""
    async with task.connect() as server:
        for tool in await server.list_tools():
            properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
            await call(server, tool.name, dict.fromkeys(properties, "x"))


@scenario("json-schema-2020-12-preservation")
async def send_the_schema_back(task: Task) -> None:
    """Send a tool's input schema back as it was received."""
    async with task.connect() as server:
        tools = await server.list_tools()
        await call(server, "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


# Skills


@scenario("sep-2640-client-no-prefetch")
async def look_at_skills(task: Task) -> None:
    """List the skills, and load none."""
    async with task.connect() as server:
        expect(len(await server.list_skills()) == 1, "there is one skill")


@scenario("sep-2640-client-verify-digest", "sep-2640-client-verify-size", "sep-2640-client-verify-frontmatter")
async def refuse_what_was_changed(task: Task) -> None:
    """Load a skill whose content is not what its entry says, and all its files if that is possible."""
    async with task.connect() as server:
        (skill,) = await server.list_skills()
        try:
            loaded = await server.load_skill(skill)
        except SkillError:
            return
        for path in loaded.files:
            await loaded.read(path)


# Authorization

FIRST_REVISION = "2025-03-26"
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
AUTHORIZED = (
    *("metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd"),
    *("scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up"),
    *("token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none"),
    *("offline-access-scope", "offline-access-not-supported", "iss-supported", "iss-not-advertised"),
    *("dpop", "dpop-nonce"),
)
REFUSED = (
    *("resource-mismatch", "metadata-issuer-mismatch", "scope-retry-limit"),
    *("iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized"),
)


def signing_in(**settings: Any) -> OAuth:
    """Return the settings of a sign-in without a person."""
    given: dict[str, Any] = {"store": MemoryTokenStore(), "user_agent": HeadlessUserAgent(), **settings}
    return OAuth(**given)


async def use(task: Task, **settings: Any) -> None:
    """Sign in, list the tools, and call one."""
    async with task.connect(auth=signing_in(client_metadata_url=CLIENT_METADATA, **settings)) as server:
        await server.list_tools()
        await call(server, "test-tool")


@scenario(*(f"auth/{name}" for name in AUTHORIZED))
async def sign_in_and_call(task: Task) -> None:
    """Sign in with nothing but what is discovered."""
    await use(task)


@scenario("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback")
async def sign_in_as_in_the_first_revision(task: Task) -> None:
    """Sign in at a server that publishes nothing about itself, as that revision allows."""
    async with task.connect(auth=signing_in(), protocol=FIRST_REVISION) as server:
        await call(server, "test-tool")


@scenario(*(f"auth/{name}" for name in REFUSED))
async def be_refused(task: Task) -> None:
    """Find out that something is wrong, and stop."""
    try:
        await use(task)
    except AuthRequiredError:
        return
    raise AssertionError("nobody noticed anything")


@scenario("auth/authorization-server-migration")
async def move(task: Task) -> None:
    """Call twice; in between, the server moves to another authorization server."""
    async with task.connect(auth=signing_in()) as server:
        await call(server, "test-tool")
        await call(server, "test-tool")


@scenario("auth/pre-registration")
async def sign_in_as_a_registered_client(task: Task) -> None:
    """Sign in as the client of the materials."""
    given = task.materials
    await use(task, client_id=given["client_id"], client_secret=given["client_secret"])


@scenario("auth/client-credentials-jwt", "auth/client-credentials-basic")
async def sign_in_as_a_machine(task: Task) -> None:
    """Sign in for oneself, with a key or with a secret."""
    keys = {"client_id": "client_id", "client_secret": "client_secret", "private_key": "private_key_pem"}
    given = {name: task.materials[key] for name, key in keys.items() if key in task.materials}
    algorithm = task.materials.get("signing_algorithm", "ES256")
    await use(task, grant="client_credentials", algorithm=algorithm, **given)


@scenario("auth/enterprise-managed-authorization", "auth/cross-app-access-complete-flow")
async def sign_in_by_the_enterprise(task: Task) -> None:
    """Sign in with what the enterprise's identity provider gives."""
    names = ("client_id", "client_secret", "idp_client_id", "idp_id_token", "idp_issuer", "idp_token_endpoint")
    await use(task, grant="enterprise", **{name: task.materials[name] for name in names if name in task.materials})


@scenario("auth/wif-jwt-bearer")
async def sign_in_as_a_workload(task: Task) -> None:
    """Sign in with the assertion of the materials."""
    given = task.materials
    await use(task, grant="jwt_bearer", client_id=given["client_id"], assertion=given["valid_jwt"])


async def call(server: McpConnection, name: str, arguments: Mapping[str, Any] | None = None) -> None:
    """Call a tool that must succeed."""
    result = await server.call_tool(name, arguments)
    expect(not result.is_error, f"{name} answers {result.text!r}")


def expect(holds: bool, otherwise: str) -> None:
    """Fail the scenario unless something holds."""
    if not holds:
        raise AssertionError(otherwise)


def main() -> None:
    """Play the scenario that the environment names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", metavar="URL")
    options = parser.parse_args()
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    play = SCENARIOS.get(name)
    if play is None:
        parser.exit(2, f"there is nothing to play for scenario {name!r}\n")
    materials = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    asyncio.run(play(Task(url=options.url, materials=materials)))


if __name__ == "__main__":
    main()
