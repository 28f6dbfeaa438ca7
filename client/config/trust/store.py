"""Which configurations a person trusts, by path and content: a file of the user's own, outside of every project."""

from pathlib import Path

from orga.client.server.home import read_table, server_home, write_table


def trust_key(path: Path) -> str:
    """Return what a file is trusted as: a link to it from elsewhere is another, with other files beside it."""
    return str(path.parent.resolve() / path.name)


def trusted_digests() -> dict[str, str]:
    """Return the digests by path.

    Raises:
        UnreadableTable: Nothing counts as trusted until somebody has looked at it.
    """
    return read_table(server_home().trust)


def trust_digest(path: Path, digest: str) -> None:
    """Trust the content of a file from now on."""
    write_table(server_home().trust, trusted_digests() | {trust_key(path): digest})


def revoke_trust(path: Path) -> bool:
    """Trust a file no longer; return whether it was trusted."""
    known = trusted_digests()
    was = known.pop(trust_key(path), None)
    write_table(server_home().trust, known)
    return was is not None
