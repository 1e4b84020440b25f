from agents import Agent, Runner

translator = Agent(name="Translator", instructions="Translate into Spanish.")
writer = Agent(
    name="Writer",
    instructions="Write greetings, with your tools.",
    tools=[translator.as_tool(tool_name="translate", tool_description="Translate into Spanish.")],
)

result = Runner.run_sync(writer, "Greet Ada in Spanish.")
print(result.final_output)
