"""The console of a gateway: pages for its operator. The only module that imports jinja2, an extra."""
