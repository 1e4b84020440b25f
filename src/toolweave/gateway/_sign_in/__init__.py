"""Sign-ins of callers at upstreams."""
