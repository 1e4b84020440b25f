"""The replicas and workers of one gateway, and the state that they share."""
