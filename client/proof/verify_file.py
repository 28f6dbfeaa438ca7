"""Verifies an exported journal by itself, without its run and without a server."""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from orga.client.journal.file import JournalFile
from orga.client.journal.head import head_check
from orga.client.journal.laws import Check, Verification, has_ended, law_faults
from orga.workflows.decisions.journal.entries import first_break

HISTORY_HINT = "only the run's history on its server shows it: orga verify ID --journal FILE"
UNCHECKABLE = (
    ("replay", "whether the code makes this run of its history"),
    ("gate", "whether nothing was carried out without an earlier yes to exactly that call"),
    ("contexts", "whether the model was sent what the digests say"),
    ("counters", "whether the result counts what happened"),
)


@dataclass(frozen=True)
class Unchecked:
    """Something that the file alone cannot show."""

    name: str
    why: str


@dataclass(frozen=True)
class FileVerification:
    """What the file alone shows."""

    found: Verification
    unchecked: tuple[Unchecked, ...]
    is_vouched_for: bool
    """True if a trusted key has signed it. Without a signature, anybody could have made all of it."""


def verify_file(file: JournalFile, trusted: Sequence[Ed25519PublicKey]) -> FileVerification:
    """Check chain, numbers, head and signature, and the laws of every journal.

    Args:
        file: The export.
        trusted: The keys to trust. If there are any, one of them must have signed the head.
    """
    run = file.head.head.run if file.head else ""
    broken = first_break(file.entries)
    chain = f"it breaks at entry {broken}: it or one before it was changed" if broken is not None else ""
    faults = "; ".join(law_faults(file.entries))
    checks = [
        Check("chain", run, not chain, chain or f"{len(file.entries)} entries, each follows from those before it"),
        Check("laws", run, not faults, faults or "it begins, asks, decides and acts as a journal does"),
    ]
    unchecked = [Unchecked(name, f"{what}: {HISTORY_HINT}") for name, what in UNCHECKABLE]
    if not has_ended(file.entries):
        unchecked.append(
            Unchecked("ending", "the run had not ended when this was written: what came later is not here")
        )
    if trusted:
        checks.append(head_check(run, file.entries, file.head, trusted))
    elif file.head is None:
        unchecked.append(Unchecked("head", "it has none: whether entries followed the last one is unknown"))
    else:
        checks.append(head_check(run, file.entries, file.head, None))
        unchecked.append(Unchecked("signature", _missing_signature(file)))
    found = Verification(run, tuple(checks))
    return FileVerification(found, tuple(unchecked), is_vouched_for=bool(trusted) and found.ok)


def _missing_signature(file: JournalFile) -> str:
    if file.head is None or not file.head.signature:
        return "nobody signed it: whoever can change the file can forge all of it"
    key = file.head.head.key_id
    return f"it is signed by key {key}, and no key is trusted here: give it with --key, or [audit] trusted_keys"
