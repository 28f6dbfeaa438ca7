"""What listed names and globs of tools mean: `SERVER_*` the tools of that MCP server, none of the worker's own."""

from collections.abc import Callable, Sequence

from orga.workflows.types.tools import is_glob, matches

IsOfServer = Callable[[str], bool]
"""Tells whether a name or a glob begins as the names of one server's tools do."""


def is_meant(tool: str, listed: Sequence[str], is_of_server: IsOfServer, *, is_own: bool) -> bool:
    """Return whether a list has the tool; `is_own` says that it belongs to the worker or to the loop.

    The worker's own `fetch_url` fits `fetch_*`, but who lists the tools of a server named `fetch` lists no others.
    """
    return any(matches(tool, [each]) and not (is_own and is_glob(each) and is_of_server(each)) for each in listed)
