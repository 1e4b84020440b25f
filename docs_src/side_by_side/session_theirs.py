from agents import Agent, Runner, SQLiteSession

agent = Agent(name="Assistant", instructions="Be brief.")
session = SQLiteSession("ada", "talks.db")

for text in ("Where is the Golden Gate Bridge?", "In which state is that?"):
    result = Runner.run_sync(agent, text, session=session)
    print(result.final_output)
