"""Messages in the forms of other libraries and APIs, read as ours. Pure."""
