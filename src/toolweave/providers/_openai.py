"""A toolset for OpenAI's Responses and Chat APIs: definitions, and the answers to a turn's tool calls.

Makes no request and needs no SDK: accepts the SDK's objects, or the same as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolweave.providers._openai_content import chat_form, chat_images, chat_text, responses_content, responses_form
from toolweave.providers._tool_export import ApiTools, ToolExport, member
from toolweave.tools import CallContext, ToolCall, ToolResult, ToolSource

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionFunctionToolParam,
        ChatCompletionToolMessageParam,
        ChatCompletionUserMessageParam,
    )
    from openai.types.responses import FunctionToolParam
    from openai.types.responses.response_input_param import FunctionCallOutput

MAX_DESCRIPTION = 1024
"""Maximum characters of a function's description for OpenAI; the rest of a longer one goes into its schema's."""


class OpenAIResponsesTools(ApiTools):
    """The tools of a toolset for `client.responses.create`, live.

    ::

        tools = OpenAIResponsesTools(hub)
        response = await client.responses.create(..., input=items, tools=tools.definitions())
        items += response.output
        items += await tools.dispatch(response)

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        strict: Enforce the schemas of those tools whose schemas OpenAI's strict mode can express.
    """

    def __init__(self, source: ToolSource, *, strict: bool = False) -> None:
        super().__init__(_listing(source, strict, responses_form))

    def definitions(self) -> list[FunctionToolParam]:
        """Return the definitions of the tools offered now, for `tools`; call it again for every request.

        Names are legal for the API and lead back to the tools; the dictionaries are the caller's to add to.
        """
        # Copies, because the definitions are cached and shared by all listings.
        return [cast("FunctionToolParam", {**one}) for one in self._listing.now().definitions]

    async def dispatch(self, response: Any, ctx: CallContext | None = None) -> list[FunctionCallOutput]:
        """Run the function calls of a response and return the items that answer them.

        The calls run at the same time; the items stand in the order of the calls. Every fault, a tool that does not
        exist included, is an output that begins with `Error:` for the model to read.

        Args:
            response: A `Response` or its output items, or the same as JSON. Items other than `function_call` are left
                alone.
            ctx: The context of each call, such as a timeout or a callback for progress.
        """
        items: Any = member(response, "output")
        if items is None:
            items = response
        made = [item for item in items if member(item, "type") == "function_call"]
        results = await self._run(made, ctx)
        return list(map(_output, made, results))

    def _call(self, made: object) -> ToolCall | ToolResult:
        return self._listing.call(member(made, "name"), member(made, "arguments"), member(made, "call_id"))


class OpenAIChatTools(ApiTools):
    """The tools of a toolset for `client.chat.completions.create` of OpenAI and compatible APIs, live.

    ::

        tools = OpenAIChatTools(hub)
        completion = await client.chat.completions.create(..., messages=messages, tools=tools.definitions())
        messages.append(completion.choices[0].message)
        messages += await tools.dispatch(completion.choices[0].message)

    Args:
        source: A toolset, tools or functions, as for `as_toolset`. It is borrowed: neither opened nor closed.
        strict: Enforce the schemas of those tools whose schemas OpenAI's strict mode can express.
        images: Send images of results, for a model that sees, in a user's message after those of the tools.
    """

    def __init__(self, source: ToolSource, *, strict: bool = False, images: bool = False) -> None:
        super().__init__(_listing(source, strict, chat_form))
        self._images = images

    def definitions(self) -> list[ChatCompletionFunctionToolParam]:
        """Return the definitions of the tools offered now, for `tools`; call it again for every request.

        Names are legal for the API and lead back to the tools; the dictionaries are the caller's to add to.
        """
        return [
            cast("ChatCompletionFunctionToolParam", {**one, "function": {**one["function"]}})
            for one in self._listing.now().definitions
        ]

    async def dispatch(
        self, message: Any, ctx: CallContext | None = None
    ) -> list[ChatCompletionToolMessageParam | ChatCompletionUserMessageParam]:
        """Run the tool calls of a message and return the messages that answer them.

        The calls run at the same time; the messages stand in the order of the calls. Every fault, a tool that does
        not exist included, is a message that begins with `Error:` for the model to read. The API takes text alone in
        them: an image is a note that says so, and with `images` follows in a message of the user.

        Args:
            message: A `ChatCompletion`, which stands for its first choice, a `ChatCompletionMessage` or its
                `tool_calls`, or the same as JSON. None of them is not a message.
            ctx: The context of each call, such as a timeout or a callback for progress.
        """
        made: list[Any] = list(_tool_calls(message))
        results = await self._run(made, ctx)
        answers: list[ChatCompletionToolMessageParam | ChatCompletionUserMessageParam] = []
        for one, result in zip(made, results, strict=True):
            answers.append({"role": "tool", "tool_call_id": member(one, "id"), "content": chat_text(result)})
        if self._images:
            names = (str(member(member(one, "function"), "name")) for one in made)
            if parts := chat_images(zip(names, results, strict=True)):
                answers.append({"role": "user", "content": cast("Any", parts)})
        return answers

    def _call(self, made: object) -> ToolCall | ToolResult:
        function = member(made, "function")
        if function is None:
            # The API refuses a conversation in which a call is not answered.
            return ToolResult.failure(f"only functions can be called, not tools of type {member(made, 'type')!r}")
        return self._listing.call(member(function, "name"), member(function, "arguments"), member(made, "id"))


def _output(item: object, result: ToolResult) -> FunctionCallOutput:
    output: Any = responses_content(result)
    return {"type": "function_call_output", "call_id": member(item, "call_id"), "output": output}


def _tool_calls(message: Any) -> Any:
    choices = member(message, "choices")
    if choices:
        message = member(choices[0], "message")
    calls = member(message, "tool_calls")
    if calls is None and member(message, "role") is None:
        # Not a message but its calls.
        calls = message
    return calls or ()


def _listing(source: ToolSource, strict: bool, form: Any) -> ToolExport:
    return ToolExport(
        source, "openai", form, strict="openai-strict" if strict else None, max_description=MAX_DESCRIPTION
    )
