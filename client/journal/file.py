"""Writes, reads and checks the file of an exported journal. An entry is a line of JSON, and the head is the last line.

The head has the run, the length and the last hash. An Ed25519 key can sign it.
"""

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import ValidationError

from orga.activities.adapters.shared_files import write_atomically
from orga.client.errors import OrgaError
from orga.client.journal.laws import Check, has_ended
from orga.workflows.decisions.journal.entries import GENESIS_HASH, canonical_line, first_break
from orga.workflows.types.json_text import unique_keys_object
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.status import JournalEntry

KEY_PREFIX = "ed25519:"
"""Prefix of a public key in its text form, before the base64."""

ID_CHARS = 16
"""Hex digits of a key's id, which is the beginning of the public key's SHA-256."""

_OTHERS_MODE = 0o077
"""Permissions of users other than the owner."""


class KeyProblem(OrgaError):
    """The key cannot be used."""


def generate_key(path: Path) -> str:
    """Write a new private key (PKCS 8, PEM, mode 0600) and its public key. Return the latter, or raise KeyProblem."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = public_text(private.public_key())
    try:
        _write_new_file(path, pem, 0o600)
        _write_new_file(public_path(path), f"{public}\n".encode(), 0o644)
    except FileExistsError as error:
        raise KeyProblem(f"{error.filename} exists already. A key is never overwritten. Name another file") from None
    except OSError as error:
        raise KeyProblem(f"{error.filename} cannot be written: {error.strerror}") from None
    return public


def public_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.pub")


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key. Raise KeyProblem if it is unreadable, no Ed25519 key, or readable by others."""
    try:
        pem, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise KeyProblem(f"the signing key {path} cannot be read: {error.strerror}") from None
    if mode & _OTHERS_MODE:
        raise KeyProblem(f"others may read the signing key {path}; run: chmod 600 {path}")
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyProblem(f"{path} holds no Ed25519 key in PEM without a password; make one with: orga audit keygen")
    return key


def public_key(text: str) -> Ed25519PublicKey:
    """Read a public key in the form of `public_text`. Raise KeyProblem if it is not one."""
    stripped = text.strip()
    try:
        return Ed25519PublicKey.from_public_bytes(b64decode(stripped.removeprefix(KEY_PREFIX), validate=True))
    except ValueError:
        raise KeyProblem(f"{stripped[:80]!r} is no public key. Such a key begins with {KEY_PREFIX}") from None


def public_text(key: Ed25519PublicKey) -> str:
    return KEY_PREFIX + b64encode(key.public_bytes_raw()).decode()


def key_id(key: Ed25519PublicKey) -> str:
    return sha256(key.public_bytes_raw()).hexdigest()[:ID_CHARS]


def is_signed(key: Ed25519PublicKey, signature: str, message: bytes) -> bool:
    try:
        decoded = b64decode(signature, validate=True)
        key.verify(decoded, message)
    except (InvalidSignature, ValueError):
        return False
    return b64encode(decoded).decode() == signature  # several base64 texts decode to the same bytes; accept only one


def _write_new_file(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


_PURPOSE = b"orga journal head 1\n"
"""Prefix of the signed message. With it, the signature of a head is valid for nothing else."""


class JournalHead(Record):
    run: str
    length: int
    hash: str
    """Hash of the last entry, which depends on all entries before it."""
    signed_at: datetime | None = None
    key_id: str = ""

    def with_signer(self, key_id: str, now: datetime) -> Self:
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
    run: str, entries: Sequence[JournalEntry], sealed: SealedHead | None, trusted: Sequence[Ed25519PublicKey] | None
) -> Check:
    """Check that the head fits the entries, and that a trusted key has signed it.

    Args:
        trusted: If it is empty, only an unsigned head is accepted. If it is None, signatures are not checked.
    """
    if sealed is None:
        last = len(entries) - 1
        return Check("head", run, False, f"it has no head: whether entries followed entry {last} is unknown")
    head = sealed.head
    faults = head_mismatches(run, entries, head)
    if trusted is None:
        signer = "signature not verified"
    else:
        faults += _signature_faults(sealed, trusted)
        signer = "not signed"
        if head.signed_at:
            signer = f"signed at {head.signed_at:%Y-%m-%dT%H:%M:%SZ} by key {head.key_id}"
    return Check("head", run, not faults, "; ".join(faults) or f"{head.length} entries, {signer}")


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


def _signature_faults(sealed: SealedHead, trusted: Sequence[Ed25519PublicKey]) -> list[str]:
    if not sealed.signature:
        lost_signature = bool(sealed.head.key_id)  # a head that was never signed names no key
        return ["its head is not signed"] if trusted or lost_signature else []
    key = next((key for key in trusted if key_id(key) == sealed.head.key_id), None)
    if key is None:
        known = ", ".join(map(key_id, trusted)) or "none"
        return [f"its head is signed by key {sealed.head.key_id}, which is not trusted; trusted: {known}"]
    if is_signed(key, sealed.signature, _signed_message(sealed.head)):
        return []
    return ["the signature is not one over this head"]


def _signed_message(head: JournalHead) -> bytes:
    return _PURPOSE + json.dumps(head.model_dump(mode="json"), sort_keys=True).encode()


def _last_hash(entries: Sequence[JournalEntry]) -> str:
    return entries[-1].hash if entries else GENESIS_HASH


NO_JOURNAL_HINT = "this is no journal; write one with: orga journal ID --export FILE"


class UnwritableJournal(OrgaError):
    """The journal cannot be written to this place."""


class NoJournal(OrgaError):
    """The file is not an exported journal."""


@dataclass(frozen=True)
class JournalFile:
    """The content of an exported journal."""

    entries: tuple[JournalEntry, ...]
    head: SealedHead | None = None
    """None if the file is the output of `orga journal ID --json`."""


def write_journal(path: Path, entries: Sequence[JournalEntry], head: SealedHead) -> None:
    """Write the whole file or nothing, readable only for its owner. Raise UnwritableJournal if that is impossible."""
    try:
        write_atomically(path, journal_content(entries, head))
    except OSError as error:
        raise UnwritableJournal(f"{path} cannot be written: {error.strerror}") from None


def journal_content(entries: Sequence[JournalEntry], head: SealedHead) -> bytes:
    lines = [*map(canonical_line, entries), json.dumps(head.model_dump(mode="json")).encode()]
    return b"".join(line + b"\n" for line in lines)


def read_journal_file(path: Path) -> JournalFile:
    """Read an exported journal. A line with an unknown or a repeated key is refused, because no hash covers such a key.

    Raises:
        NoJournal: The file is not a journal, or its bytes are not canonical. The error names the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NoJournal(f"{path} cannot be read: {error}") from None
    text = content.removesuffix(b"\n")
    lines = text.split(b"\n") if text else []
    entries: list[JournalEntry] = []
    head: SealedHead | None = None
    for number, line in enumerate(lines):
        try:
            parsed = json.loads(line.decode(), object_pairs_hook=unique_keys_object)
            is_last = number == len(lines) - 1
            if is_last and isinstance(parsed, dict) and "head" in parsed:
                head = SealedHead.model_validate_json(line, strict=True, extra="forbid")
            else:
                entries.append(JournalEntry.model_validate_json(line, strict=True, extra="forbid"))
        except (ValidationError, ValueError, RecursionError):
            raise _changed_line_error(path, number) from None
    if head is not None:
        _require_canonical(path, content, entries, head)
    return JournalFile(tuple(entries), head)


def _require_canonical(path: Path, content: bytes, entries: Sequence[JournalEntry], head: SealedHead) -> None:
    """Refuse a consistent journal in other bytes than `write_journal` writes. Later checks report inconsistent ones."""
    is_consistent = first_break(entries) is None and not head_mismatches(head.head.run, entries, head.head)
    canonical = journal_content(entries, head)
    if not is_consistent or content == canonical:
        return
    lines = enumerate(zip(content.split(b"\n"), canonical.split(b"\n"), strict=False))
    changed = (number for number, (line, expected) in lines if line != expected)
    raise _changed_line_error(path, next(changed, len(entries)))  # by default the head, whose line end is missing


def _changed_line_error(path: Path, number: int) -> NoJournal:
    return NoJournal(f"{path}:{number + 1} is no journal entry: entry {number} was changed, or {NO_JOURNAL_HINT}")


def export_check(workflow_id: str, exported: Sequence[JournalEntry], entries: Sequence[JournalEntry]) -> Check:
    """Compare an export with the run's journal. The export of a live run may have fewer entries than the journal."""

    def result(ok: bool, detail: str) -> Check:
        return Check("export", workflow_id, ok, detail)

    if (broken := first_break(exported)) is not None:
        return result(False, f"its chain breaks at entry {broken}: it or one before it was changed")
    for entry, recorded in zip(exported, entries, strict=False):
        if entry.hash != recorded.hash:
            differing = ", ".join(_differing_fields(entry, recorded))
            return result(False, f"entry {entry.sequence} differs from the history in {differing}")
    if len(exported) > len(entries):
        return result(False, f"it has {len(exported)} entries, the run {len(entries)}")
    if len(exported) < len(entries) and has_ended(entries):
        return result(False, f"it ends after {len(exported)} of {len(entries)} entries: the tail is missing")
    return result(True, f"{len(exported)} of {len(entries)} entries, unchanged")


def _differing_fields(entry: JournalEntry, recorded: JournalEntry) -> list[str]:
    """Return the fields in which two entries with different hashes differ: the hash itself only if no other does."""
    names = [name for name in JournalEntry.model_fields if name != "hash"]
    return [name for name in names if getattr(entry, name) != getattr(recorded, name)] or ["hash"]
