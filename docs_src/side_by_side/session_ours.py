from toolweave import Agent, SqliteStore

agent = Agent("openai:gpt-5.1", system="Be brief.", store=SqliteStore("talks.db"))

for text in ("Where is the Golden Gate Bridge?", "In which state is that?"):
    result = agent.run_sync(text, session="ada")
    print(result.text)
