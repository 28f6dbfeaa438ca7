"""An import that is stopped in the middle, by Ctrl-C or kill -9: what is stored stays, the same command goes on."""

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
"""Items after which the import is stopped."""
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


def stored(folder: Path) -> list[str]:
    """Return the texts that the store has; none where it is not there yet."""
    file = folder.parent / "knowledge.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        try:
            return [text for (text,) in connection.execute("SELECT text FROM items")]
        except sqlite3.OperationalError:  # its tables are being made
            return []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("write", [write_lines, write_documents], ids=["an export", "documents"])
def test_a_stopped_import_goes_on_where_it_was(
    orga: Orga, write: Callable[[Path], str], number: signal.Signals
) -> None:
    path = write(orga.folder)
    with orga.started("knowledge", "import", path) as running:
        deadline = time.monotonic() + TIMEOUT_S
        while len(stored(orga.folder)) < SOME and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send(number)
        code = running.code()
    before = stored(orga.folder)
    assert SOME <= len(before) < ITEMS, "it was stopped in the middle"
    assert len(set(before)) == len(before)
    if number == signal.SIGINT:
        assert code == 130
        assert any("the same command continues from here" in line for line in running.err)
        assert [line for line in running.err if "Traceback" in line] == []

    done = orga("knowledge", "import", path, "--json")
    assert done.code == 0, done.err
    counts = json.loads(done.out)
    added = counts["items"]["added"] or sum(counts["documents"][each] for each in ("added", "changed"))
    assert 0 < added < (ITEMS if path.endswith("jsonl") else DOCUMENTS), "the rest alone is stored"
    texts = stored(orga.folder)
    assert len(texts) == len(set(texts)) == ITEMS
    assert set(before) <= set(texts)
    facts = json.loads(orga("knowledge", "stats", "--json").out)
    assert facts["counts"] == {"memory" if path.endswith("jsonl") else "document": ITEMS}


def test_a_person_sees_how_far_an_import_is_and_is_asked_before_anything_is_forgotten(orga: Orga) -> None:
    with at_a_terminal(orga, "knowledge", "import", write_lines(orga.folder)) as terminal:
        terminal.shows(r"[1-9][\d,]* items, \d\d? % of lines\.jsonl")
        terminal.shows(r"items: 3,000 added")
        assert terminal.code() == 0
    forgetting = ("knowledge", "forget", "--tenant", "")
    for answer, code in ((None, 130), ("n\r", 130), ("y\r", 0)):
        assert len(stored(orga.folder)) == ITEMS
        with at_a_terminal(orga, *forgetting) as terminal:
            terminal.shows(r"and 2,995 more")
            terminal.shows(r"Erase 3,000 memories for ever\? \[y/N\]")
            if answer is None:
                terminal.process.send_signal(signal.SIGINT)
            else:
                terminal.types(answer)
            assert terminal.code() == code
    assert stored(orga.folder) == []
