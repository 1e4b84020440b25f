from pydantic_ai import Agent, RunContext

agent = Agent("openai:gpt-5.1", deps_type=str)


@agent.tool_plain
def roll_dice() -> int:
    """Roll a die."""
    return 4


@agent.tool
def player(ctx: RunContext[str]) -> str:
    """Return the player's name."""
    return ctx.deps


result = agent.run_sync("I guess 4.", deps="Ada")
print(result.output)
