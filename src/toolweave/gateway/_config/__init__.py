"""The config of a gateway: read, checked, and compared with the config in use."""
