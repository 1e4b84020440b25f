from pydantic_ai import Agent

agent = Agent("openai:gpt-5.1", instructions="Be brief.")

result = agent.run_sync("Who wrote Emma?")
print(result.output)
