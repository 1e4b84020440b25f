"""Tasks of upstreams, and slow calls that become tasks."""
