from toolweave import Agent

translator = Agent("openai:gpt-5.1", system="Translate into Spanish.")
writer = Agent(
    "openai:gpt-5.1",
    system="Write greetings, with your tools.",
    tools=[translator.as_tool("translate", "Translate into Spanish.")],
)

result = writer.run_sync("Greet Ada in Spanish.")
print(result.text)
