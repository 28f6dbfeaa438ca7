"""The text of PDF documents: what `read_file` shows, and what an import of knowledge stores."""

import subprocess
import time
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from orga.activities.adapters.tools import pdf_text as pdf_module
from orga.activities.adapters.tools import read_file as read_module
from orga.activities.adapters.tools.file_changes import EditFile, EditRecords
from orga.activities.adapters.tools.file_search import SearchText
from orga.activities.adapters.tools.pdf_text import UnreadablePdf, pdf_text
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from tests.support.knowledge.commands import Shown, command_json, command_output, own_folder, search_results
from tests.support.parts.system_packages import require
from tests.support.tools.calls import CONTEXT, failure, result
from tests.support.values.pdfs import a_pdf, pdf_of

__all__ = ["own_folder"]


def encrypted(data: bytes, password: str) -> bytes:
    writer = PdfWriter(PdfReader(BytesIO(data)))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    written = BytesIO()
    writer.write(written)
    return written.getvalue()


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path) -> ReadFile:
    return ReadFile(FileRoot(tmp_path))


async def test_pages_are_read_as_numbered_lines(tool: ReadFile, tmp_path: Path) -> None:
    (tmp_path / "f.pdf").write_bytes(a_pdf("Prices (2026)\nCoffee: 3 EUR", "Terms"))
    assert (await result(tool, path="f.pdf")).split("\n") == [
        "f.pdf (lines 1-5 of 5, the text of 2 pages)",
        *("1\t[page 1]", "2\tPrices (2026)", "3\tCoffee: 3 EUR", "4\t[page 2]", "5\tTerms"),
    ]


async def test_a_long_document_is_read_window_by_window_and_extracted_once(
    tool: ReadFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(a_pdf(*(f"page {n}\nline" for n in range(1, 151))))
    extracted = 0

    async def counted(data: bytes) -> pdf_module.PdfText:
        nonlocal extracted
        extracted += 1
        return await pdf_text(data)

    monkeypatch.setattr(read_module, "pdf_text", counted)
    first, second = await result(tool, path="f"), await result(tool, path="f", start_line=401, end_line=402)
    assert first.endswith("[cut at line 400 of 450; call read_file with start_line=401 for more]")
    assert second.split("\n")[1:3] == ["401\tpage 134", "402\tline"]
    assert extracted == 1


@pytest.mark.parametrize("password", ["", "secret"], ids=["no user password", "a user password"])
async def test_a_password_is_needed_only_if_readers_need_it(tool: ReadFile, tmp_path: Path, password: str) -> None:
    (tmp_path / "f.pdf").write_bytes(encrypted(a_pdf("hello"), password))
    if password:
        assert "needs a password; save it without one" in str(await failure(tool, path="f.pdf"))
    else:
        assert "hello" in await result(tool, path="f.pdf")


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        pytest.param(b"%PDF-1.7\nnothing", "damaged PDF", id="no PDF at all"),
        pytest.param(a_pdf("hello")[:300], "damaged PDF", id="a cut file"),
        pytest.param(pdf_of([b""], kids="2 0 R"), "PDF", id="a page tree in a circle"),
        pytest.param(pdf_of([b"0 " * 60_000_000]), "PDF", id="a bomb"),
        pytest.param(b"%PDF-1.7" + b" " * (16 * 1024 * 1024), "more than 16,384 KiB", id="a large file"),
    ],
)
async def test_an_unreadable_document_is_refused_in_time(
    tool: ReadFile, tmp_path: Path, data: bytes, reported: str
) -> None:
    (tmp_path / "f.pdf").write_bytes(data)
    began = time.monotonic()
    error = await failure(tool, path="f.pdf")
    assert (error.kind, reported in str(error)) == ("UnreadablePdf", True), str(error)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "data",
    [pytest.param(a_pdf(""), id="no text"), pytest.param(pdf_of([b"[" * 1_000_000]), id="endless nesting")],
)
async def test_a_document_without_text_is_returned_itself(tool: ReadFile, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "scan.pdf").write_bytes(data)
    output = await tool.call({"path": "scan.pdf"}, CONTEXT)
    (part,) = output.media
    assert (output.content, part.kind, part.name, part.pages) == ("scan.pdf", "document", "scan.pdf", 1)


async def test_pages_beyond_the_limits_are_reported_as_missing() -> None:
    """The limit is the child's, so the document has to reach it."""
    page = b"BT /F1 12 Tf 1 TL 72 770 Td " + (b"(" + b"x" * 45_000 + b") Tj T*\n") * 20 + b" ET"
    found = await pdf_text(pdf_of([page] * 5))
    assert (len(found.pages), found.total, found.note()) == (2, 5, "the first 2 of 5 pages")


async def test_a_document_of_a_browser_is_read(tool: ReadFile, tmp_path: Path) -> None:
    require("chromium", "chromium")
    (tmp_path / "page.html").write_text("<h1>Invoice 17</h1><p>Grüße, 12 €</p><p style='break-before:page'>Second")
    print_it = ["--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={tmp_path / 'f.pdf'}"]
    subprocess.run(["chromium", *print_it, "--no-pdf-header-footer", str(tmp_path / "page.html")], check=True)
    text = await result(tool, path="f.pdf")
    assert "the text of 2 pages" in text
    assert "Invoice 17" in text
    assert "Grüße, 12 €" in text
    assert text.index("[page 2]") < text.index("Second")


async def test_other_tools_leave_pdfs_alone(tmp_path: Path) -> None:
    (tmp_path / "f.pdf").write_bytes(a_pdf("hello"))
    assert "1 binary" in await result(SearchText(FileRoot(tmp_path)), query="hello")
    editor = EditFile(FileRoot(tmp_path), EditRecords(None))
    assert (await failure(editor, path="f.pdf", old_text="Page", new_text="x")).kind == "BinaryFile"


@pytest.mark.usefixtures("own_folder")
def test_an_import_stores_each_page_with_its_number(capsys: Shown) -> None:
    Path("docs").mkdir()
    Path("docs/prices.pdf").write_bytes(a_pdf("Coffee costs three euros.", "Tea costs two euros.\n" * 100))
    Path("docs/locked.PDF").write_bytes(encrypted(a_pdf("hello"), "secret"))
    done = command_json(capsys, "import", "docs")["documents"]
    assert (done["added"], done["parts"] >= 3) == (1, True)
    assert list(done["unreadable"]) == ["docs/locked.PDF"]
    found = {each["text"].split("\n")[0] for each in search_results(capsys, "what does tea cost")}
    assert "Page 2" in found
    [coffee] = [each for each in search_results(capsys, "coffee") if "Coffee" in each["text"]]
    assert (coffee["text"], coffee["provenance"]["source"]) == ("Page 1\nCoffee costs three euros.", "docs/prices.pdf")
    assert command_json(capsys, "import", "docs")["documents"]["unchanged"] == 1
    Path("docs/prices.pdf").write_bytes(a_pdf("All is free."))
    command_output(capsys, "import", "docs")
    assert [each["text"] for each in search_results(capsys)] == ["Page 1\nAll is free."]


async def test_a_broken_document_has_a_reason() -> None:
    with pytest.raises(UnreadablePdf, match="print it into a new one"):
        await pdf_text(b"%PDF")
