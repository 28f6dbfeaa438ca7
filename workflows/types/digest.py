"""Digests: a conversation and a setup are known by what is in them."""

from base64 import urlsafe_b64encode
from hashlib import sha256

from pydantic import BaseModel

from orga.workflows.types.messages import Message

EMPTY = ""
"""The digest of a conversation without messages."""

REFERENCE_BYTES = 16
"""A reference in a payload is the first 128 bits of the digest, in base64: 22 characters."""


def extend(digest: str, message: Message) -> str:
    """Return the digest of a conversation after one more message: a chain of sha256, 64 hex characters."""
    return sha256(digest.encode() + canonical(message)).hexdigest()


def digest_of(messages: tuple[Message, ...], start: str = EMPTY) -> str:
    """Return the digest of `messages` appended to the conversation with digest `start`."""
    for message in messages:
        start = extend(start, message)
    return start


def reference(digest: str) -> str:
    """Return the short form that payloads carry."""
    return urlsafe_b64encode(bytes.fromhex(digest)[:REFERENCE_BYTES]).decode().rstrip("=")


def record_digest(record: BaseModel) -> str:
    """Return the digest of any record, 64 hex characters."""
    return sha256(canonical(record)).hexdigest()


def text_digest(text: str) -> str:
    """Return the digest of a text in UTF-8, 64 hex characters."""
    return sha256(text.encode()).hexdigest()


def canonical(record: BaseModel) -> bytes:
    """Return the one JSON text of a record: field order of its type, defaults left out."""
    return record.model_dump_json(exclude_defaults=True).encode()
