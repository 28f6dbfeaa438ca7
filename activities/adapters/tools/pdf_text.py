"""Extracts the text of a PDF, page by page. As a program, this module reads a PDF and writes JSON."""

import json
import sys
import time
from dataclasses import dataclass
from io import BytesIO

from orga.activities.adapters.process_streams import child_output, limit_this_process

PDF_SIGNATURE = b"%PDF"
MAX_PDF_BYTES = 16 * 1024 * 1024
_MAX_CHARS = 2_000_000
_WORK_S = 15.0
"""Seconds of processor time. Pages that are not read by then are left out. Most documents take less."""

_LAST_WORK_S = 20.0
"""Seconds of processor time after which the process is ended. This happens if a single page takes too long."""

_TIMEOUT_S = 120.0
"""Seconds that the whole process may last. On a busy machine it lasts longer than its processor time."""

_MEMORY_BYTES = 1_000_000_000


class UnreadablePdf(ValueError):
    """The text cannot be extracted. The message gives the reason and the remedy."""


class PdfWithoutText(UnreadablePdf):
    """The PDF has no text. Its pages may be pictures."""


@dataclass(frozen=True)
class PdfText:
    pages: tuple[str, ...]
    total: int
    """The number of pages of the document. `pages` has fewer if the time or the size was not enough for all."""

    def note(self) -> str:
        """Return a text with the number of pages, and with the number that was read if it is smaller."""
        total = f"{self.total} page{'' if self.total == 1 else 's'}"
        return total if len(self.pages) == self.total else f"the first {len(self.pages)} of {total}"


async def pdf_text(data: bytes) -> PdfText:
    """Return the text of a PDF. A child process reads it, because a PDF may be hostile.

    Raise UnreadablePdf if it is damaged, needs a password, is too large, or has no text.
    """
    if len(data) > MAX_PDF_BYTES:
        raise UnreadablePdf(f"it is a PDF of more than {MAX_PDF_BYTES // 1024:,} KiB; split it")
    output = await child_output(__name__, data, _TIMEOUT_S)
    if not output:
        raise UnreadablePdf("it is a damaged PDF, or too complex to read; print it into a new one")
    pages, total = json.loads(output)
    if total < 0:
        raise UnreadablePdf("it is a PDF that needs a password; save it without one")
    if not any(page.strip() for page in pages):
        raise PdfWithoutText("it is a PDF without text, its pages may be images; use a version with text")
    return PdfText(tuple(pages), total)


def main() -> None:
    """Read a PDF from standard input, and write its pages' texts and their number, or -1 if it needs a password."""
    from pypdf import PdfReader

    limit_this_process(_MEMORY_BYTES, _LAST_WORK_S)
    reader = PdfReader(BytesIO(sys.stdin.buffer.read()))
    if reader.is_encrypted and not reader.decrypt(""):
        sys.stdout.write(json.dumps([[], -1]))
        return
    found: list[str] = []
    chars, total = 0, len(reader.pages)
    for number in range(total):
        if time.process_time() > _WORK_S:
            break
        text = reader.pages[number].extract_text().rstrip()
        chars += len(text)
        if chars > _MAX_CHARS:
            break
        found.append(text)
    sys.stdout.write(json.dumps([found, total]))
