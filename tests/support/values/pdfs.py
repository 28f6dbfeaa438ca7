"""PDF documents, written object by object."""

import zlib
from collections.abc import Sequence


def a_pdf(*pages: str) -> bytes:
    """Return a document with a page for each text. Its lines are Latin-1."""
    return pdf_of([_page_content(page) for page in pages])


def pdf_of(contents: Sequence[bytes], kids: str | None = None) -> bytes:
    """Return a document whose pages have these content streams. `kids` replaces the list of its pages."""
    first = 4
    numbers = " ".join(f"{first + 2 * index} 0 R" for index in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{numbers if kids is None else kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, content in enumerate(contents):
        page = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {first + 2 * index + 1} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {page} >>".encode())
        packed = zlib.compress(content, 9)
        objects.append(b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed))
    written, offsets = b"%PDF-1.7\n", list[int]()
    for number, each in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    end = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(written))
    return written + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + end


def _page_content(text: str) -> bytes:
    lines = [
        b"(%s) Tj T*" % line.encode("latin-1").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
        for line in text.split("\n")
    ]
    return b"BT /F1 12 Tf 14 TL 72 770 Td " + b"\n".join(lines) + b" ET"
