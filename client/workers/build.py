"""Which build a worker is of: a digest of the code that runs, ours and the libraries that decide in workflow code."""

import sys
from base64 import b32encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.metadata import version

from orga.own_code import sources

LIBRARIES = ("google-re2", "minijinja", "opentelemetry-api", "pydantic", "pydantic-core", "rapidfuzz", "temporalio")
"""What workflow code imports besides ours: another version may answer otherwise."""

BUILD_CHARS = 6
"""Of base32, 30 bits: two of a hundred builds are the same once in 200,000 times. It stands in three events of every
workflow and activity task, so it is short."""


@cache
def build_id() -> str:
    """Return the build of this process, the same wherever the same code is installed."""
    return digest_of(sources(), {"python": f"{sys.version_info[:2]}", **{name: version(name) for name in LIBRARIES}})


def digest_of(code: Iterable[tuple[str, bytes]], versions: dict[str, str]) -> str:
    """Return the build that this code is, with these libraries."""
    found = sha256(repr(sorted(versions.items())).encode())
    for name, source in code:
        found.update(name.encode() + b"/" + sha256(source).digest())
    return b32encode(found.digest()).decode().lower()[:BUILD_CHARS]
