"""`orga knowledge` with files: imports and exports of documents and items, and a project's conventions."""

import json
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest

from orga.client.cli.main import run_command
from tests.support.knowledge.commands import (
    Shown,
    command_json,
    command_output,
    own_folder,
    refusal_line,
    search_results,
)
from tests.support.parts.free_port import free_port

__all__ = ["own_folder"]

pytestmark = pytest.mark.usefixtures("own_folder")

BOOK = "# Prices\n" + "\n\n".join(f"Article {n} costs {n} euros, and not a cent less. " * 6 for n in range(30))


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def test_a_document_is_found_by_its_parts(capsys: Shown) -> None:
    write("docs/prices.md", BOOK)
    write("docs/code.py", "print('no document')")
    write("docs/old/notes.TXT", "Nothing here.")
    done = command_json(capsys, "import", "docs", "--tenant", "acme")
    assert (done["documents"]["added"], done["documents"]["parts"] > 5) == (2, True)
    first = search_results(capsys, "what does article 17 cost", "--tenant", "acme")[0]
    assert "Article 17 costs" in first["text"]
    assert first["text"].startswith("Prices\n")
    assert (first["kind"], first["directory"], first["provenance"]["source"]) == ("document", "docs", "docs/prices.md")
    assert search_results(capsys, "article") == [], "another tenant finds nothing"


def test_removed_text_of_a_document_is_erased(capsys: Shown) -> None:
    write("prices.md", BOOK)
    first = command_json(capsys, "import", "prices.md")["documents"]
    assert command_json(capsys, "import", ".")["documents"] == {**first, "added": 0, "unchanged": 1}
    write("prices.md", "# Prices\nAll is free.")
    assert command_output(capsys, "import", "prices.md") == "documents: 1 changed (1 part)\n"
    assert [each["text"] for each in search_results(capsys)] == ["Prices\nAll is free."]
    write("prices.md", "")
    assert command_output(capsys, "import", "prices.md") == "documents: 1 changed (0 parts)\n"
    assert search_results(capsys) == []
    assert "nothing to import" in command_output(capsys, "import", "prices.md")


def test_removed_text_is_erased_even_after_a_missing_part(capsys: Shown) -> None:
    write("docs/prices.md", BOOK)
    command_output(capsys, "import", "docs")
    parts = {each["text"]: each["id"] for each in search_results(capsys)}
    command_output(capsys, "forget", "--yes", "--id", next(id_ for text, id_ in parts.items() if "Article 9 " in text))
    write("docs/prices.md", "# Prices\nAll is free.")
    assert command_output(capsys, "import", "docs") == "documents: 1 changed (1 part)\n"
    assert [each["text"] for each in search_results(capsys)] == ["Prices\nAll is free."]


def test_replaced_or_erased_items_are_wiped_from_the_file(capsys: Shown) -> None:
    """This holds even if another process has the store open, so that its write-ahead log stays."""
    write("prices.md", "# Prices\nThe zanzibar costs 3 euros.")
    write("AGENTS.md", "Ask quuxword.")
    command_output(capsys, "import", "prices.md")
    command_output(capsys, "import-conventions")
    store = Path(command_json(capsys, "stats")["place"])
    other = sqlite3.connect(store)
    other.execute("SELECT count(*) FROM items").fetchall()
    write("prices.md", "# Prices\nAll is free.")
    command_output(capsys, "import", "prices.md")
    assert not files_with("zanzibar", store)
    Path("AGENTS.md").unlink()
    command_output(capsys, "import-conventions")
    assert not files_with("quuxword", store)
    other.close()


def files_with(word: str, store: Path) -> list[Path]:
    files = [each for each in store.parent.iterdir() if each.name.startswith(store.name)]
    assert len(files) > 1
    return [each for each in files if word.encode() in each.read_bytes()]


def test_deleted_documents_are_listed_and_erased_only_on_request(capsys: Shown, tmp_path: Path) -> None:
    """Only documents of the imported folder count: no other folder, no other owner, no skipped file."""
    for path in ("docs/a.md", "docs/old/b.md", "docs/c.cfg", "docs/d.md", "docsy/e.md", "../far/f.md"):
        write(path, f"The text of {path}.")
    command_output(capsys, "import", "docs", "docs/c.cfg", "docsy", "../far")
    command_output(capsys, "import", "docs", "--user", "ada")
    for path in ("docs/a.md", "docs/old/b.md", "docs/d.md", "docsy/e.md", "../far/f.md"):
        Path(path).unlink()
    write("docs/d.md", "Another text.")

    assert run_command(["knowledge", "import", "docs"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "documents: 1 changed, 2 gone (1 part)\n"
    assert "gone, and still stored: docs/a.md\ngone, and still stored: docs/old/b.md\n" in shown.err
    assert "--forget-gone" in shown.err
    assert len(search_results(capsys)) == 6

    assert run_command(["knowledge", "import", "docs", "--forget-gone"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "documents: 1 unchanged, 2 forgotten (1 part)\n"
    assert "gone, forgotten: docs/a.md" in shown.err
    left = {each["provenance"]["source"] for each in search_results(capsys)}
    assert left == {"docs/c.cfg", "docs/d.md", "docsy/e.md", str(tmp_path / "far/f.md")}
    assert len(search_results(capsys, "--user", "ada")) == 4 + 3
    assert command_json(capsys, "import", ".")["documents"]["gone"] == ["docsy/e.md"]
    assert command_json(capsys, "import", "../far", "--forget-gone")["documents"]["forgotten"] == [
        str(tmp_path / "far/f.md")
    ]


def test_a_document_outside_the_folder_is_stored_with_its_whole_path(capsys: Shown, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.md").write_text("Far away.")
    command_output(capsys, "import", "../elsewhere.md", "--untrusted")
    [far] = search_results(capsys)
    assert (far["provenance"]["source"], far["directory"]) == (str(tmp_path / "elsewhere.md"), "")
    assert far["provenance"]["taint"] == ["import"]
    assert "tainted by import" in command_output(capsys, "search")


def test_a_document_that_is_no_longer_trusted_is_tainted(capsys: Shown) -> None:
    write("prices.md", "# Prices\nAll is free.")
    command_output(capsys, "import", "prices.md")
    assert command_output(capsys, "import", "prices.md", "--untrusted") == "documents: 1 changed (1 part)\n"
    assert [each["provenance"]["taint"] for each in search_results(capsys)] == [["import"]]


def test_an_unreadable_document_is_named_and_the_rest_is_imported(capsys: Shown) -> None:
    write("docs/a.md", "Good.")
    Path("docs/b\x1b[2J.md").write_bytes(b"\0bad")
    Path("docs/c.md").symlink_to("/etc/hostname")
    assert run_command(["knowledge", "import", "docs"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "documents: 1 added, 2 unreadable (1 part)\n"
    assert shown.err.count("not read: docs/") == 2
    assert "it is no text" in shown.err
    assert "\x1b" not in shown.err
    assert "it is no text" in refusal_line(capsys, "import", "docs/b\x1b[2J.md")


def test_an_export_can_be_imported_unchanged(capsys: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write("AGENTS.md", "# Tests\nRun them.")
    command_output(capsys, "import-conventions")
    command_output(capsys, "add", "the api", "is", "up", "--user", "ada", "--expires", "2d")
    command_output(capsys, "add", "the api", "is", "down \u202e\u009b", "--user", "ada")
    assert command_output(capsys, "export", "../backup.jsonl") == "3 items written to ../backup.jsonl\n"
    assert stat.S_IMODE((tmp_path / "backup.jsonl").stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    lines = command_output(capsys, "export")
    assert not {"\u202e", "\u009b"} & set(lines), "no control characters on a terminal"
    assert list(map(json.loads, lines.splitlines())) == list(
        map(json.loads, (tmp_path / "backup.jsonl").read_text().splitlines())
    )
    facts = command_output(capsys, "export", "--kind", "fact").splitlines()
    assert len(facts) == 3

    before = {each["id"]: each for each in search_results(capsys, "--user", "ada")}
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "another"))
    assert command_json(capsys, "import", "../backup.jsonl")["items"] == {"added": 3, "updated": 0, "unchanged": 0}
    assert {each["id"]: each for each in search_results(capsys, "--user", "ada")} == before
    assert command_output(capsys, "import", "../backup.jsonl") == "items: 3 unchanged\n"


def damage(word: bytes, store: Path) -> None:
    """Overwrite the pages of the file that contain a word."""
    data = bytearray(store.read_bytes())
    while (at := data.find(word)) >= 0:
        start = at // 4096 * 4096
        data[start : start + 4096] = b"\xff" * 4096
    store.write_bytes(data)


def test_a_partial_export_of_a_damaged_store_does_not_replace_an_export(capsys: Shown) -> None:
    """The existing file may be the last complete one."""
    write("prices.md", BOOK * 9)
    command_output(capsys, "import", "prices.md")
    command_output(capsys, "export", "backup.jsonl")
    whole = Path("backup.jsonl").read_bytes()
    damage(b"Article 17 costs", Path(command_json(capsys, "stats")["place"]))

    assert run_command(["knowledge", "export", "backup.jsonl"]) == 6
    shown = capsys.readouterr()
    assert "items could be read; written to backup.partial.jsonl\n" in shown.err
    assert "The way back" in shown.err
    assert Path("backup.jsonl").read_bytes() == whole
    rest = Path("backup.partial.jsonl").read_text().splitlines()
    assert 1 < len(rest) < len(whole.splitlines())

    assert run_command(["knowledge", "export", "another.jsonl"]) == 6
    assert "written to another.jsonl" in capsys.readouterr().err
    assert Path("another.jsonl").read_text().splitlines() == rest


def test_a_failed_export_leaves_the_file_unchanged(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    command_output(capsys, "add", "one")
    command_output(capsys, "export", "backup.jsonl")
    whole = Path("backup.jsonl").read_bytes()
    damage(b"CREATE TABLE items", Path(command_json(capsys, "stats")["place"]))
    for name in ("backup.jsonl", "another.jsonl"):
        assert run_command(["knowledge", "export", name]) == 6
    monkeypatch.setenv("ORGA_KNOWLEDGE__BACKEND", "postgres")
    monkeypatch.setenv("ORGA_KNOWLEDGE_DSN", f"postgresql://nobody@127.0.0.1:{free_port()}/orga")
    assert run_command(["knowledge", "export", "backup.jsonl"]) == 6
    assert "cannot be reached" in capsys.readouterr().err
    assert {each.name: each.read_bytes() for each in Path().iterdir()} == {"backup.jsonl": whole}


def test_an_export_is_private_even_if_its_folder_contains_planted_files(capsys: Shown, tmp_path: Path) -> None:
    """Others who can write to the folder could create a file or a link at the path first."""
    command_output(capsys, "add", "one")
    theirs = tmp_path / "theirs"
    theirs.write_text("as it was")
    Path(".a.jsonl.part").symlink_to(theirs)
    Path(".b.jsonl.part").touch()
    Path(".b.jsonl.part").chmod(0o666)
    Path("c.jsonl").symlink_to(theirs)
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        command_output(capsys, "export", name)
        assert stat.S_IMODE(Path(name).lstat().st_mode) == 0o600
        assert not Path(name).is_symlink()
    assert theirs.read_text() == "as it was"


LINES = {
    "no JSON": ("{", "line 2 cannot be imported: it is no JSON"),
    "nested without end": ("[" * 100_000, "line 2 cannot be imported: it is no JSON"),
    "no item": ('{"kind": "rumour", "text": "x"}', "line 2 cannot be imported: kind: "),
    "a list": ("[1]", "line 2 cannot be imported: "),
    "an unknown key": ('{"kind": "memory", "text": "x", "txet": "y"}', "txet"),
    "a user scope without a user": ('{"kind": "memory", "text": "x", "scope": "user"}', "no user is named"),
    "half a character": ('{"kind": "memory", "text": "\\ud800"}', "line 2 cannot be imported: "),
    "another export": ('{"format": "x"}\n', "line 2 cannot be imported: "),
}


@pytest.mark.parametrize(("line", "says"), LINES.values(), ids=LINES)
def test_an_invalid_line_is_reported_with_its_number(capsys: Shown, line: str, says: str) -> None:
    write("lines.jsonl", f'{{"kind": "memory", "text": "good"}}\n{line}\n')
    why = refusal_line(capsys, "import", "lines.jsonl")
    assert why.startswith("orga: lines.jsonl: ")
    assert says in why


def test_a_file_that_is_not_text_or_too_new_is_refused(capsys: Shown) -> None:
    Path("lines.jsonl").write_bytes(b"\xff\xfe{}")
    assert "it is no UTF-8" in refusal_line(capsys, "import", "lines.jsonl")
    write("lines.jsonl", '{"format": "orga-knowledge", "version": 99}\n')
    assert "upgrade orga" in refusal_line(capsys, "import", "lines.jsonl")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["import", "gone.md"], "gone.md: there is no such file or folder", id="nothing there"),
        pytest.param(
            ["import", "x.jsonl", "--user", "ada"], "file name their owners", id="an owner for a file of items"
        ),
        pytest.param(["export", "gone/x.jsonl"], "gone/x.jsonl cannot be written: No such file", id="no folder"),
        pytest.param(["export", "--kind", "rumour"], "--kind 'rumour': unknown kind", id="no such kind"),
    ],
)
def test_a_mistake_is_reported(capsys: Shown, arguments: list[str], says: str) -> None:
    write("x.jsonl", "")
    assert says in refusal_line(capsys, *arguments)


def test_conventions_are_imported_and_reported_by_their_change(capsys: Shown) -> None:
    write("AGENTS.md", "# Tests\nRun them.")
    write("src/api/AGENTS.md", "Handlers hold no SQL.")
    write("web/AGENTS.md", "No semicolons.")
    write("web/package.json", "{")
    assert run_command(["knowledge", "import-conventions"]) == 0
    shown = capsys.readouterr()
    assert "added                     src/api/AGENTS.md  (1 convention)" in shown.out
    assert "not read, unchanged       web/package.json  (0 conventions): it is no JSON" in shown.out
    assert shown.err == "3 added, 1 unreadable\n"
    nearest = [each["text"] for each in search_results(capsys, "--directory", "src/api/users.py")]
    assert nearest == ["Handlers hold no SQL.", "Tests\nRun them."]

    write("src/api/AGENTS.md", "Handlers may hold SQL.")
    Path("web/AGENTS.md").unlink()
    changes = command_json(capsys, "import-conventions")
    assert (changes["project"], changes["at"]) == ("shop", "")
    assert {each["path"]: each["change"] for each in changes["files"]} == {
        "AGENTS.md": "unchanged",
        "src/api/AGENTS.md": "changed",
        "web/AGENTS.md": "removed",
        "web/package.json": "unreadable",
    }
    assert [each["path"] for each in command_json(capsys, "import-conventions", "src")["files"]] == [
        "src/api/AGENTS.md"
    ]


def test_another_project_needs_its_own_directory(capsys: Shown, tmp_path: Path) -> None:
    write("AGENTS.md", "Ours.")
    write("../web/AGENTS.md", "Theirs.")
    command_output(capsys, "import-conventions")
    assert "belong to the project 'shop', not to 'web'" in refusal_line(capsys, "import-conventions", "../web")
    command_output(capsys, "import-conventions", "../web", "--at", "apps/web")
    assert [each["text"] for each in search_results(capsys, "--directory", "apps/web/a.ts")] == ["Theirs.", "Ours."]


def test_imported_conventions_are_tainted_on_request(capsys: Shown) -> None:
    write("../web/AGENTS.md", "Theirs.")
    command_output(capsys, "import-conventions", "../web", "--at", "web")
    [change] = command_json(capsys, "import-conventions", "../web", "--at", "web", "--untrusted")["files"]
    assert (change["path"], change["change"]) == ("web/AGENTS.md", "changed")
    assert [each["provenance"]["taint"] for each in search_results(capsys, "--directory", "web")] == [["import"]]
    [change] = command_json(capsys, "import-conventions", "../web", "--at", "web", "--untrusted")["files"]
    assert change["change"] == "unchanged"


def test_conventions_in_vendored_code_are_skipped_even_if_git_tracks_them(capsys: Shown) -> None:
    write("AGENTS.md", "Ours.")
    for folder in ("vendor/lib", "web/third_party", "node_modules/x"):
        write(f"{folder}/AGENTS.md", "Theirs.")
    for command in (["init", "-q"], ["add", "-A", "-f"]):
        subprocess.run(["git", *command], check=True)
    assert [each["path"] for each in command_json(capsys, "import-conventions")["files"]] == ["AGENTS.md"]


def test_an_untrusted_import_adds_its_mark_to_the_marks_of_each_item(capsys: Shown) -> None:
    marks: list[list[str]] = [[], ["fetch_url"]]
    items = [{"kind": "memory", "text": f"{n}", "provenance": {"taint": mark}} for n, mark in enumerate(marks)]
    write("lines.jsonl", "\n".join(map(json.dumps, items)))
    command_output(capsys, "import", "lines.jsonl", "--untrusted")
    taints = {each["text"]: each["provenance"]["taint"] for each in search_results(capsys)}
    assert taints == {"0": ["import"], "1": ["fetch_url", "import"]}


def test_paths_are_relative_to_the_project_root(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    write("orga.toml", "")
    write("AGENTS.md", "Ours.")
    write("src/AGENTS.md", "Of src.")
    write("src/notes.md", "A note.")
    command_output(capsys, "import-conventions")
    monkeypatch.chdir("src")
    changes = command_json(capsys, "import-conventions")
    assert (changes["project"], changes["at"]) == ("shop", "src")
    assert [(each["path"], each["change"]) for each in changes["files"]] == [("src/AGENTS.md", "unchanged")]
    command_output(capsys, "import", "notes.md")
    [note] = search_results(capsys, "--kind", "document")
    assert (note["provenance"]["source"], note["directory"]) == ("src/notes.md", "src")


def test_a_folder_without_conventions_is_reported(capsys: Shown) -> None:
    assert run_command(["knowledge", "import-conventions"]) == 0
    assert (
        capsys.readouterr().err == "no file here contains conventions; see: orga knowledge import-conventions --help\n"
    )
