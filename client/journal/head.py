"""The head of an exported journal: its run, length and last hash. A signed head vouches for every entry."""

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orga.client.journal.laws import Check
from orga.client.journal.signing import is_signed, key_id
from orga.workflows.decisions.journal.entries import GENESIS_HASH
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.status import JournalEntry

PURPOSE = b"orga journal head 1\n"
"""Prefix of the signed message, so that a signature of a head is valid for nothing else."""


class JournalHead(Record):
    """The signed values."""

    run: str
    length: int
    hash: str
    """Hash of the last entry, which depends on all entries before it."""
    signed_at: datetime | None = None
    key_id: str = ""

    def with_signer(self, key_id: str, now: datetime) -> Self:
        """Return the head with that key as its signer."""
        return replace_fields(self, {"signed_at": now, "key_id": key_id})


class SealedHead(Record):
    """The last line of an export."""

    head: JournalHead
    signature: str = ""
    """Base64. Empty if the head is not signed."""


def sealed_head(run: str, entries: Sequence[JournalEntry], key: Ed25519PrivateKey | None, now: datetime) -> SealedHead:
    """Return the head of these entries, signed if there is a key."""
    head = JournalHead(run=run, length=len(entries), hash=_last_hash(entries))
    if key is None:
        return SealedHead(head=head)
    head = head.with_signer(key_id(key.public_key()), now)
    return SealedHead(head=head, signature=b64encode(key.sign(_signed_message(head))).decode())


def head_check(
    run: str, entries: Sequence[JournalEntry], found: SealedHead | None, trusted: Sequence[Ed25519PublicKey] | None
) -> Check:
    """Check that the head fits the entries, and that a trusted key has signed it.

    Args:
        run: The id of the run whose journal it should be.
        entries: The entries of the export.
        found: The head of the export, or None.
        trusted: The keys to trust. If there are any, the head must be signed. None skips the check of signatures.
    """
    if found is None:
        last = len(entries) - 1
        return Check("head", run, False, f"it has no head: whether entries followed entry {last} is unknown")
    faults = [
        *head_mismatches(run, entries, found.head),
        *([] if trusted is None else _signature_faults(found, trusted)),
    ]
    head = found.head
    by = f"signed at {head.signed_at:%Y-%m-%dT%H:%M:%SZ} by key {head.key_id}" if head.signed_at else "not signed"
    by = "signature not looked at" if trusted is None else by
    return Check("head", run, not faults, "; ".join(faults) or f"{head.length} entries, {by}")


def head_mismatches(run: str, entries: Sequence[JournalEntry], head: JournalHead) -> list[str]:
    """Return the differences between head and entries, such as a cut tail or an added entry."""
    faults = [f"its head is that of {head.run}"] if head.run != run else []
    if len(entries) < head.length:
        return [*faults, f"entry {len(entries)} is missing: the head counts {head.length}, the tail was cut"]
    if len(entries) > head.length:
        return [*faults, f"entry {head.length} is beyond the head, which counts {head.length}"]
    if head.hash != _last_hash(entries):
        faults.append(f"entry {len(entries) - 1} does not have the hash of the head: it or one before it was replaced")
    return faults


def _signature_faults(found: SealedHead, trusted: Sequence[Ed25519PublicKey]) -> list[str]:
    if not found.signature:
        return ["its head is not signed"] if trusted or found.head.key_id else []
    key = next((key for key in trusted if key_id(key) == found.head.key_id), None)
    if key is None:
        known = ", ".join(map(key_id, trusted)) or "none"
        return [f"its head is signed by key {found.head.key_id}, which is not trusted; trusted: {known}"]
    return (
        []
        if is_signed(key, found.signature, _signed_message(found.head))
        else ["the signature is not one over this head"]
    )


def _signed_message(head: JournalHead) -> bytes:
    return PURPOSE + json.dumps(head.model_dump(mode="json"), sort_keys=True).encode()


def _last_hash(entries: Sequence[JournalEntry]) -> str:
    return entries[-1].hash if entries else GENESIS_HASH
