"""The loop of a run: the decision of each step, the model's turns, the calls of tools, and their telemetry."""
