"""The head of an exported journal: whose it is, how long, its last hash; signed, it vouches for every entry."""

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
"""Before what is signed, so that a signature over a head is one over nothing else."""


class JournalHead(Record):
    """What is signed: every field of it."""

    run: str
    length: int
    hash: str
    """Of the last entry, and by the chain of all before it."""
    signed_at: datetime | None = None
    key_id: str = ""

    def with_signer(self, key_id: str, now: datetime) -> Self:
        """Return what that key signs now."""
        return replace_fields(self, {"signed_at": now, "key_id": key_id})


class SealedHead(Record):
    """The last line of an export."""

    head: JournalHead
    signature: str = ""
    """Base64; empty where nobody signed."""


def sealed_head(run: str, entries: Sequence[JournalEntry], key: Ed25519PrivateKey | None, now: datetime) -> SealedHead:
    """Return the head of these entries, signed where there is a key."""
    head = JournalHead(run=run, length=len(entries), hash=_last_hash(entries))
    if key is None:
        return SealedHead(head=head)
    head = head.with_signer(key_id(key.public_key()), now)
    return SealedHead(head=head, signature=b64encode(key.sign(_signed_message(head))).decode())


def head_check(
    run: str, entries: Sequence[JournalEntry], found: SealedHead | None, trusted: Sequence[Ed25519PublicKey] | None
) -> Check:
    """Check that the entries are those of the head, and the head one that a trusted key has signed.

    Args:
        run: Whose journal it should be.
        entries: Of the export.
        found: Its head; None where it has none.
        trusted: Keys to go by; with any, a head without a signature is wrong. None leaves signatures alone.
    """
    if found is None:
        last = len(entries) - 1
        return Check("head", run, False, f"it has no head: whether anything stood after entry {last} is unknown")
    faults = [
        *head_mismatches(run, entries, found.head),
        *([] if trusted is None else _signature_faults(found, trusted)),
    ]
    head = found.head
    by = f"signed at {head.signed_at:%Y-%m-%dT%H:%M:%SZ} by key {head.key_id}" if head.signed_at else "not signed"
    by = "signature not looked at" if trusted is None else by
    return Check("head", run, not faults, "; ".join(faults) or f"{head.length} entries, {by}")


def head_mismatches(run: str, entries: Sequence[JournalEntry], head: JournalHead) -> list[str]:
    """Return what the head says otherwise than the entries: a tail that was cut, an entry that was added."""
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
