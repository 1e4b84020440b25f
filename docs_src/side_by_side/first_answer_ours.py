from toolweave import Agent

agent = Agent("openai:gpt-5.1", system="Be brief.")

result = agent.run_sync("Who wrote Emma?")
print(result.text)
