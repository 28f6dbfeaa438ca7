"""The keys of exported journals: create one, find the one that signs, and those that are trusted."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.shown.text import write_note, write_result
from orga.client.config.sections import AuditConfig
from orga.client.journal.head import KEY_PREFIX, generate_key, key_id, private_key, public_key, public_path
from orga.client.user_path import user_path

KEY_FILE_VARIABLE = "ORGA_SIGNING_KEY_FILE"

Key = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PUB", help="Trust this public key (ed25519:… or a file with it) instead of \\[audit] trusted_keys."
    ),
]


def keygen(
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file for the private key.")] = Path("orga-signing.key"),
) -> int:
    """Create a key that signs exported journals: FILE is private, FILE.pub is for those who verify.

    Example: orga audit keygen --out audit.key
    """
    public = generate_key(out)
    write_note(f"wrote {out} (private, mode 0600) and {public_path(out)}; key id {key_id(public_key(public))}")
    write_note(f"to sign: {KEY_FILE_VARIABLE}={out}; to trust it: [audit] trusted_keys in orga.toml")
    write_result(public)
    return 0


def signing_key(config: AuditConfig) -> Ed25519PrivateKey:
    """Return the private key that signs exports. Raise UsageError without one, or KeyProblem if it cannot be used."""
    path = signing_key_file(config)
    if path is None:
        raise UsageError(
            f"--sign: no key is configured. Set {KEY_FILE_VARIABLE} or [audit] signing_key_file. "
            "Create a key with: orga audit keygen"
        )
    return private_key(path)


def signing_key_file(config: AuditConfig) -> Path | None:
    """Return the file of the private key, or None if no key is configured."""
    named = os.environ.get(KEY_FILE_VARIABLE) or config.signing_key_file
    return user_path(named) if named else None


def trusted_keys(config: AuditConfig, named: Sequence[str]) -> list[Ed25519PublicKey]:
    """Return the keys that check signatures: those of the command line, or if it names none those of the configuration.

    The two are not combined: a configuration that came with an export must not vouch for it if a person names the key.

    Raises:
        KeyProblem: One of them is not a public key.
    """
    return [public_key(_key_text(key)) for key in named or config.trusted_keys]


def _key_text(key: str) -> str:
    path = user_path(key)
    if key.startswith(KEY_PREFIX) or not path.is_file():
        return key
    return path.read_text(encoding="utf-8", errors="replace")
