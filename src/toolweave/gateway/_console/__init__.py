"""The console of a gateway: pages for the person who runs it. The only place that imports jinja2, an extra."""
