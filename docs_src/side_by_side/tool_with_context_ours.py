from toolweave import Agent, CallContext


def roll_dice() -> int:
    """Roll a die."""
    return 4


def player(ctx: CallContext) -> str:
    """Return the player's name."""
    return ctx.state["player"]


agent = Agent("openai:gpt-5.1", tools=[roll_dice, player])

result = agent.run_sync("I guess 4.", ctx=CallContext(state={"player": "Ada"}))
print(result.text)
