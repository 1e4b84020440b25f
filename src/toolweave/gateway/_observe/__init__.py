"""Reports of a gateway: metrics, spans, recent calls and tasks, and the runs of agents."""
