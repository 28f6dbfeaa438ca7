"""Distinguishes text from binary files, and guesses the kind of a binary file."""

import mimetypes

SNIFFED_BYTES = 8_192

_SIGNATURES = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive or Office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


def is_binary(head: bytes) -> bool:
    """Return whether a file that starts with `head` is no text: it contains a NUL, or is a PDF, which may have none."""
    return b"\0" in head[:SNIFFED_BYTES] or head.startswith(b"%PDF")


def binary_kind(name: str, head: bytes) -> str:
    """Return a guess from the first bytes, or else from the name."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    return mimetypes.guess_type(name)[0] or "unknown kind"
