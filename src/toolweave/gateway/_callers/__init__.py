"""The callers of a gateway: who they are, and which upstreams each of them sees."""
