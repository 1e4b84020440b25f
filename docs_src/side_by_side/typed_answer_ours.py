from pydantic import BaseModel

from toolweave import Agent


class City(BaseModel):
    """A city and its country."""

    city: str
    country: str


agent = Agent("openai:gpt-5.1", output_type=City)

result = agent.run_sync("Where were the first modern Olympics?")
print(result.output)
