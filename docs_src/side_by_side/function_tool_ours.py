from toolweave import Agent


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It is sunny in {city}."


agent = Agent("openai:gpt-5.1", system="Be brief.", tools=[weather])

result = agent.run_sync("How is the weather in Oslo?")
print(result.text)
