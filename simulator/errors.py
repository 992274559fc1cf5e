"""What goes wrong when a node is put together."""


class StartError(Exception):
    """A process did not come up, in one line."""
