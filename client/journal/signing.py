"""Ed25519 keys: generates them, stores them in a file that only its owner can read, and identifies them by an id."""

import os
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orga.client.errors import OrgaError

KEY_PREFIX = "ed25519:"
"""Prefix of a public key in its text form, before the base64."""

ID_CHARS = 16
OTHERS = 0o077


class KeyProblem(OrgaError):
    """The key cannot be used."""


def generate_key(path: Path) -> str:
    """Write a new private key (PKCS 8, PEM, mode 0600) and next to it its public key. Return the public one.

    Raises:
        KeyProblem: One of the files exists already, or cannot be written.
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
    """Return the path of the public key that belongs to a private key file."""
    return path.with_name(f"{path.name}.pub")


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key.

    Raises:
        KeyProblem: It cannot be read, is no Ed25519 key, or can also be read by others.
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
        KeyProblem: It is not a public key.
    """
    stripped = text.strip()
    try:
        return Ed25519PublicKey.from_public_bytes(b64decode(stripped.removeprefix(KEY_PREFIX), validate=True))
    except ValueError:
        raise KeyProblem(f"{stripped[:80]!r} is no public key; one begins with {KEY_PREFIX}") from None


def public_text(key: Ed25519PublicKey) -> str:
    """Return the text form of a public key."""
    return KEY_PREFIX + b64encode(key.public_bytes_raw()).decode()


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id by which signatures name their key."""
    return sha256(key.public_bytes_raw()).hexdigest()[:ID_CHARS]


def is_signed(key: Ed25519PublicKey, signature: str, message: bytes) -> bool:
    """Return whether the signature is the key's over the message, in canonical base64."""
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
