"""The exporter: reads who uses which GPU memory on this node and serves it to Prometheus. It only ever reads."""

from importlib import metadata


def version() -> str:
    """The version of podgpu, from the installed distribution."""
    return metadata.version("podgpu")
