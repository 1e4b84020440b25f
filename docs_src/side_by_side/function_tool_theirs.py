from agents import Agent, Runner, function_tool


@function_tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It is sunny in {city}."


agent = Agent(name="Assistant", instructions="Be brief.", tools=[weather])

result = Runner.run_sync(agent, "How is the weather in Oslo?")
print(result.final_output)
