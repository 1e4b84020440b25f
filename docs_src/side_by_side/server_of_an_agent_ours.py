from toolweave import Agent

agent = Agent("openai:gpt-5.1", tools=["python -m toolweave.cli.demo.numbers"])

result = agent.run_sync("What is 1 + 2 + 39?")
print(result.text)
