"""Glob patterns over paths."""

from collections.abc import Callable

from wcmatch import glob
from wcmatch._wcparse import PatternLimitException  # its only home

from orga.activities.ports import ToolError

_FLAGS = glob.GLOBSTAR | glob.BRACE | glob.MATCHBASE | glob.DOTGLOB
_MAX_LENGTH = 200
_MAX_STAR_STARS = 3
"""Measured: each further `**` multiplies the time of a match by five."""
_MAX_ALTERNATIVES = 100

DESCRIPTION = (
    "Glob below `path`: `*` stays within a folder, `**` crosses folders, `{a,b}` are alternatives; "
    "a pattern without a slash matches file names at any depth (`*.py`)."
)


def path_filter(pattern: str | None) -> Callable[[str], bool]:
    """Return the test that a path relative to the folder of the search has to pass.

    Raises:
        ToolError: Kind InvalidPattern, when matching it could take too long.
    """
    if pattern is None:
        return lambda path: True
    plain = pattern.removeprefix("./")
    if len(plain) > _MAX_LENGTH or plain.count("**") > _MAX_STAR_STARS:
        raise _too_complex(pattern)
    try:
        matcher = glob.compile(plain, flags=_FLAGS, limit=_MAX_ALTERNATIVES)
    except PatternLimitException:
        raise _too_complex(pattern) from None
    return lambda path: bool(matcher.match(path))


def _too_complex(pattern: str) -> ToolError:
    limits = f"{_MAX_LENGTH} characters, {_MAX_STAR_STARS} `**` and {_MAX_ALTERNATIVES} alternatives"
    return ToolError(f"pattern {pattern[:80]!r}: more than {limits}; use a simpler one", kind="InvalidPattern")
