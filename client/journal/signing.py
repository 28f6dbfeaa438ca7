"""Ed25519 keys: made, kept in a file that only its owner reads, and told apart by an id."""

import os
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orga.client.errors import OrgaError

KEY_PREFIX = "ed25519:"
"""Before the base64 of a public key, as people pass it on."""

ID_CHARS = 16
OTHERS = 0o077


class KeyProblem(OrgaError):
    """A key that cannot be used."""


def generate_key(path: Path) -> str:
    """Write a new private key (PKCS 8, PEM, mode 0600) and, beside it, its public key; return the public one.

    Raises:
        KeyProblem: One of the files is there already, or cannot be written.
    """
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = public_text(private.public_key())
    try:
        _write_new_file(path, pem, 0o600)
        _write_new_file(public_path(path), f"{public}\n".encode(), 0o644)
    except FileExistsError as error:
        raise KeyProblem(f"{error.filename} is there already; a key is never overwritten, name another file") from None
    except OSError as error:
        raise KeyProblem(f"{error.filename} cannot be written: {error.strerror}") from None
    return public


def public_path(path: Path) -> Path:
    """Return where the public key of a private one is written."""
    return path.with_name(f"{path.name}.pub")


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key.

    Raises:
        KeyProblem: It cannot be read, is no Ed25519 key, or others may read it, too.
    """
    try:
        pem, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise KeyProblem(f"the signing key {path} cannot be read: {error.strerror}") from None
    if mode & OTHERS:
        raise KeyProblem(f"others may read the signing key {path}; run: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyProblem(f"{path} holds no Ed25519 key in PEM without a password; make one with: orga audit keygen")
    return key


def public_key(text: str) -> Ed25519PublicKey:
    """Read a public key, as `public_text` writes it.

    Raises:
        KeyProblem: It is none.
    """
    stripped = text.strip()
    try:
        return Ed25519PublicKey.from_public_bytes(b64decode(stripped.removeprefix(KEY_PREFIX), validate=True))
    except ValueError:
        raise KeyProblem(f"{stripped[:80]!r} is no public key; one begins with {KEY_PREFIX}") from None


def public_text(key: Ed25519PublicKey) -> str:
    """Return a public key as one word."""
    return KEY_PREFIX + b64encode(key.public_bytes_raw()).decode()


def key_id(key: Ed25519PublicKey) -> str:
    """Return the name that signatures give of their key."""
    return sha256(key.public_bytes_raw()).hexdigest()[:ID_CHARS]


def is_signed(key: Ed25519PublicKey, signature: str, message: bytes) -> bool:
    """Return whether the base64 signature is that of the key over the message, written in the one usual way."""
    try:
        decoded = b64decode(signature, validate=True)
        key.verify(decoded, message)
    except (InvalidSignature, ValueError):
        return False
    return b64encode(decoded).decode() == signature


def _write_new_file(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
