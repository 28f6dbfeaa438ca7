"""The body of a response as text, whatever character set it claims to be in."""

import codecs
import re

_OF_THE_WEB = re.compile(r"utf-(?:8|16|32)|iso8859|cp\d|koi8|mac|gb|big5|euc|shift|iso2022|ascii|tis|hz")
"""Python's other codecs may be slow, or no text."""


def decoded(body: bytes, charset: str | None) -> str:
    """Return the text; UTF-8 where `charset` is none of the web."""
    return body.decode(_known(charset or "utf-8"), errors="replace").removeprefix("\ufeff")


def _known(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _OF_THE_WEB.match(name) else "utf-8"
