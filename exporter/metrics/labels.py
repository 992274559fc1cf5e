"""Label values that can be written, whatever the names in them hold."""

import re

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")  # what undecodable bytes of a file name become in a str


def texts(*values: str) -> tuple[str, ...]:
    """Label values that can be written as UTF-8: a lone surrogate becomes U+FFFD."""
    if "".join(values).isascii():
        return values
    return tuple(_LONE_SURROGATES.sub("\ufffd", value) for value in values)
