"""The names under which models and histories know MCP tools: legal, unique, and the same on every worker."""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256

MAX_CHARS = 64
SEPARATOR = "_"
"""Separates server and tool. Server names do not contain it, so tools of two servers never share a name."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_CHARS = 8


def legal_names(server: str, tools: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """Return the legal name of each tool of a server: `SERVER_tool`.

    A changed or cut name ends in a hash of the original, so it does not depend on other tools or their order.

    Args:
        tools: The server's own names. A repeated one counts once.
        taken: Names that belong to others.
    """
    wanted = {tool: f"{server}{SEPARATOR}{tool}" for tool in tools}
    names = {
        tool: name
        for tool, name in wanted.items()
        if len(name) <= MAX_CHARS and not _ILLEGAL.search(name) and name not in taken
    }
    for tool in sorted(wanted.keys() - names.keys()):
        names[tool] = _hashed_name(wanted[tool], {*taken, *names.values()})
    return {tool: names[tool] for tool in wanted}


def meant_server(tool: str, servers: Iterable[str]) -> str | None:
    """Return the server whose name begins `tool`, a tool name or a glob, or None."""
    prefix, separator, _ = tool.partition(SEPARATOR)
    return prefix if separator and prefix in servers else None


def is_server_tool(tool: str, servers: Iterable[str]) -> bool:
    """Return whether a tool name or a glob begins with the name of one of the servers."""
    return meant_server(tool, servers) is not None


def _hashed_name(name: str, taken: Collection[str]) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    legal = _ILLEGAL.sub(SEPARATOR, name)
    hashes = (f"{SEPARATOR}{digest[:length]}" for length in range(_HASH_CHARS, MAX_CHARS // 2))
    candidates = (legal[: MAX_CHARS - len(end)] + end for end in hashes)
    return next(candidate for candidate in candidates if candidate not in taken)
