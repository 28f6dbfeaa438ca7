"""The configurations that a person trusts, by path and digest. The record is the user's own, outside every project."""

from pathlib import Path

from orga.client.server.home import read_table, server_home, write_table


def trust_key(path: Path) -> str:
    """Return the key of a file. A link from elsewhere has its own key, since other files lie next to it."""
    return str(path.parent.resolve() / path.name)


def trusted_digests() -> dict[str, str]:
    """Return the trusted digests by path.

    Raises:
        UnreadableTable: The record is damaged. Nothing counts as trusted until somebody has looked at it.
    """
    return read_table(server_home().trust)


def trust_digest(path: Path, digest: str) -> None:
    """Trust a file with this content from now on."""
    write_table(server_home().trust, trusted_digests() | {trust_key(path): digest})


def revoke_trust(path: Path) -> bool:
    """Stop trusting a file. Return whether it was trusted."""
    known = trusted_digests()
    was = known.pop(trust_key(path), None)
    write_table(server_home().trust, known)
    return was is not None
