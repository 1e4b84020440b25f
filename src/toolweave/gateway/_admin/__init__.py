"""The operator's side of a gateway: its manager, the admin API with its client, status and probes."""
