"""An import stopped by Ctrl-C or kill -9: stored items stay, and the same command continues."""

import json
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.programs.orga_command import Orga, an_orga
from tests.support.programs.terminal import at_a_terminal

ITEMS = 3_000
DOCUMENTS = 150
SOME = 500
"""Items after which the test stops the import."""
TIMEOUT_S = 60.0


@pytest.fixture
def orga(tmp_path: Path) -> Orga:
    folder = tmp_path / "shop"
    folder.mkdir()
    return an_orga(folder, tmp_path / "home", ORGA_KNOWLEDGE__PATH=str(tmp_path / "knowledge.db"))


def write_lines(folder: Path) -> str:
    lines = (json.dumps({"kind": "memory", "text": f"article {n} has the number {n * 7}"}) for n in range(ITEMS))
    (folder / "lines.jsonl").write_text("\n".join(lines))
    return "lines.jsonl"


def write_documents(folder: Path) -> str:
    (folder / "docs").mkdir()
    for n in range(DOCUMENTS):
        sections = (f"# Section {part}\nArticle {n} says {part * n} and nothing else.\n" for part in range(20))
        (folder / f"docs/{n}.md").write_text("".join(sections))
    return "docs"


def stored_texts(folder: Path) -> list[str]:
    """Return the texts in the store, or none if there is no store yet."""
    file = folder.parent / "knowledge.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        try:
            return [text for (text,) in connection.execute("SELECT text FROM items")]
        except sqlite3.OperationalError:  # its tables are being created
            return []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("write", [write_lines, write_documents], ids=["an export", "documents"])
def test_the_same_command_continues_a_stopped_import(
    orga: Orga, write: Callable[[Path], str], number: signal.Signals
) -> None:
    path = write(orga.folder)
    with orga.started("knowledge", "import", path) as running:
        deadline = time.monotonic() + TIMEOUT_S
        while len(stored_texts(orga.folder)) < SOME and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send(number)
        code = running.code()
    before = stored_texts(orga.folder)
    assert SOME <= len(before) < ITEMS, "the import was not stopped in the middle"
    assert len(set(before)) == len(before)
    if number == signal.SIGINT:
        assert code == 130
        assert any("the same command continues from here" in line for line in running.err)
        assert [line for line in running.err if "Traceback" in line] == []

    done = orga("knowledge", "import", path, "--json")
    assert done.code == 0, done.err
    counts = json.loads(done.out)
    added = counts["items"]["added"] or sum(counts["documents"][each] for each in ("added", "changed"))
    assert 0 < added < (ITEMS if path.endswith("jsonl") else DOCUMENTS), "only the rest is stored"
    texts = stored_texts(orga.folder)
    assert len(texts) == len(set(texts)) == ITEMS
    assert set(before) <= set(texts)
    facts = json.loads(orga("knowledge", "stats", "--json").out)
    assert facts["counts"] == {"memory" if path.endswith("jsonl") else "document": ITEMS}


def test_an_import_shows_its_progress_and_forgetting_asks_for_confirmation(orga: Orga) -> None:
    with at_a_terminal(orga, "knowledge", "import", write_lines(orga.folder)) as terminal:
        terminal.shows(r"[1-9][\d,]* items, \d\d? % of lines\.jsonl")
        terminal.shows(r"items: 3,000 added")
        assert terminal.code() == 0
    forgetting = ("knowledge", "forget", "--tenant", "")
    for answer, code in ((None, 130), ("n\r", 130), ("y\r", 0)):
        assert len(stored_texts(orga.folder)) == ITEMS
        with at_a_terminal(orga, *forgetting) as terminal:
            terminal.shows(r"and 2,995 more")
            terminal.shows(r"Erase 3,000 memories for ever\? \[y/N\]")
            if answer is None:
                terminal.process.send_signal(signal.SIGINT)
            else:
                terminal.types(answer)
            assert terminal.code() == code
    assert stored_texts(orga.folder) == []
