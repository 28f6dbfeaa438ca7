"""An exported journal is read strictly. It contains nothing that no hash covers."""

from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings

from orga.client.journal.file import (
    KeyProblem,
    NoJournal,
    SealedHead,
    UnwritableJournal,
    generate_key,
    head_check,
    is_signed,
    key_id,
    private_key,
    public_key,
    public_path,
    read_journal_file,
    sealed_head,
    write_journal,
)
from orga.workflows.decisions.journal.entries import first_break
from tests.support.values.core import at
from tests.support.values.journals import Made, a_journal, journals, three

RUN = "agent-1"
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)


@settings(max_examples=40)
@given(journals)
def test_any_text_is_read_back_unchanged(tmp_path: Path, made: list[Made]) -> None:
    entries = a_journal(made)
    head = sealed_head(RUN, entries, KEY, at(1_000))
    write_journal(tmp_path / "run.jsonl", entries, head)
    found = read_journal_file(tmp_path / "run.jsonl")
    assert (first_break(found.entries), found.head) == (None, head)
    assert [entry.hash for entry in found.entries] == [entry.hash for entry in entries]


@pytest.mark.parametrize("name", [".run.jsonl.part", ".run.jsonl.tmp", "run.jsonl.part", "run.jsonl"])
def test_an_export_follows_no_link_and_is_private(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / name).symlink_to(other)
    write_journal(tmp_path / "run.jsonl", three(), sealed_head(RUN, three(), KEY, at(1_000)))
    written = tmp_path / "run.jsonl"
    assert (other.read_text(), written.is_symlink(), written.stat().st_mode & 0o777) == ("mine", False, 0o600)
    assert {path.name for path in tmp_path.iterdir()} == {"other", "run.jsonl", name}


def test_line_separators_in_a_text_do_not_split_a_line(tmp_path: Path) -> None:
    entries = a_journal([("Started", 0, {"task": "a\u2028b\x85c\x1cd\re"})])
    write_journal(tmp_path / "run.jsonl", entries, sealed_head(RUN, entries, KEY, at(1_000)))
    assert read_journal_file(tmp_path / "run.jsonl").entries == tuple(entries)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param('"iteration":1', '"iteration":1, "approved": true', id="an unknown key"),
        pytest.param('"iteration":1', '"iteration":9, "iteration":1', id="a key that occurs twice"),
        pytest.param('"data":{}', '"data":{"tool":"rm", "tool":"ls"}', id="twice within the data"),
        pytest.param('"iteration":1', '"iteration":"1"', id="text for a number"),
        pytest.param('"iteration":1', '"iteration":1.0', id="a float for a number"),
        pytest.param('"sequence":1', '"sequence":true', id="a boolean for a number"),
        pytest.param('{"sequence":1', '{"sequence":1}\n{"sequence":1', id="a torn line"),
        pytest.param('{"sequence":1', '\n{"sequence":1', id="an empty line"),
    ],
)
def test_an_invalid_entry_is_reported_with_its_line(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "run.jsonl"
    write_journal(path, three(), sealed_head(RUN, three(), None, at(0)))
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(NoJournal, match=r"run\.jsonl:2 is no journal entry: entry 1 was changed"):
        read_journal_file(path)


@pytest.mark.parametrize(
    ("kept", "before", "after", "line"),
    [
        pytest.param((3, 0, 1, 2), "", "", 1, id="a head in the first line"),
        pytest.param((0, 1, 2, 3, 2), "", "", 4, id="an entry after the head"),
        pytest.param((0, 1, 2, 3), '"run"', '"by": "me", "run"', 4, id="an extra key in the head"),
        pytest.param((0, 1, 2, 3), '"signature"', '"signature": "", "signature"', 4, id="two signatures"),
    ],
)
def test_the_head_is_the_last_line_and_contains_nothing_else(
    tmp_path: Path, kept: tuple[int, ...], before: str, after: str, line: int
) -> None:
    path = tmp_path / "run.jsonl"
    write_journal(path, three(), sealed_head(RUN, three(), KEY, at(0)))
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{lines[nth].replace(before, after) if before else lines[nth]}\n" for nth in kept))
    with pytest.raises(NoJournal, match=rf"run\.jsonl:{line} is no journal entry"):
        read_journal_file(path)


OTHER_BYTES = {
    "line ends of Windows": (b"}\n", b"}\r\n"),
    "an escaped letter": (b"tool", b"t\\u006fol"),
    "an escaped slash": (b"a/b", b"a\\/b"),
    "an escaped non-ASCII letter": ("ä".encode(), b"\\u00e4"),
    "minus zero": (b'"n":0', b'"n":-0'),
    "a number with an exponent": (b'"x":1.5', b'"x":15e-1'),
    "a number with more places": (b'"x":1.5', b'"x":1.50'),
    "UTC as an offset": (b"Z", b"+00:00"),
    "a space": (b'"iteration":', b'"iteration": '),
    "a space at the end": (b"}\n", b"} \n"),
    "a space in the head": (b'"head": {', b'"head":  {'),
    "an escaped letter in the head": (b'"run"', b'"r\\u0075n"'),
    "the time of the head with an offset": (b'Z", "key_id"', b'+00:00", "key_id"'),
    "no line end after the head": (b'=="}\n', b'=="}'),
    "an empty line at the end": (b'"}\n', b'"}\n\n'),
    "a byte order mark": (b'{"sequence":0', b'\xef\xbb\xbf{"sequence":0'),
    "invalid UTF-8": (b"tool", b"t\xff\xfel"),
}


@pytest.mark.parametrize(("before", "after"), OTHER_BYTES.values(), ids=OTHER_BYTES)
def test_an_equivalent_export_with_other_bytes_counts_as_changed(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "run.jsonl"
    entries = a_journal([("Started", 0, {"tool": "a/b ä", "x": 1.5, "n": 0}), ("Terminated", 1, {})])
    write_journal(path, entries, sealed_head(RUN, entries, KEY, at(1_000)))
    content = path.read_bytes()
    assert before in content
    for count in (1, -1):
        path.write_bytes(content.replace(before, after, count))
        with pytest.raises(NoJournal, match=r"run\.jsonl:\d is no journal entry: entry \d was changed"):
            read_journal_file(path)
    path.write_bytes(content)
    assert read_journal_file(path).entries == tuple(entries)


def test_a_signature_has_only_one_accepted_form(tmp_path: Path) -> None:
    """The last letter of a base64 text has bits without meaning."""
    head = sealed_head(RUN, three(), KEY, at(1_000))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = head.signature.rstrip("=")[-1]
    other = head.signature.replace(f"{last}==", f"{letters[letters.index(last) + 1]}==")
    assert (b64decode(other), other) == (b64decode(head.signature), other)
    assert head_check(RUN, three(), head, [KEY.public_key()]).ok
    changed = SealedHead(head=head.head, signature=other)
    assert not head_check(RUN, three(), changed, [KEY.public_key()]).ok


def test_a_file_without_a_head_is_a_journal_and_an_empty_file_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{entry.model_dump_json()}\n" for entry in three()))
    assert (read_journal_file(path).entries, read_journal_file(path).head) == (tuple(three()), None)
    path.write_text("")
    assert read_journal_file(path).entries == ()


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    public = public_key(generate_key(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert public_path(path).read_text().strip().startswith("ed25519:")
    assert key_id(private_key(path).public_key()) == key_id(public)
    with pytest.raises(KeyProblem, match="never overwritten"):
        generate_key(path)


def test_an_unusable_key_is_reported_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    with pytest.raises(KeyProblem, match="cannot be read: No such file"):
        private_key(path)
    generate_key(path)
    path.chmod(0o640)
    with pytest.raises(KeyProblem, match=r"others may read .* chmod 600"):
        private_key(path)
    path.chmod(0o600)
    path.write_text("no key")
    with pytest.raises(KeyProblem, match="holds no Ed25519 key"):
        private_key(path)
    for text in ("", "ed25519:", "ed25519:AAAA", "ed25519:ü", "-----BEGIN"):
        with pytest.raises(KeyProblem, match="no public key"):
            public_key(text)


def test_a_signature_that_is_not_base64_is_invalid() -> None:
    key = Ed25519PrivateKey.generate().public_key()
    assert [is_signed(key, text, b"m") for text in ("", "!", "AAAA", "ü")] == [False] * 4


@pytest.mark.parametrize("place", ["gone/x", "taken"])
def test_a_journal_that_cannot_be_written_is_reported_and_leaves_no_file(tmp_path: Path, place: str) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UnwritableJournal, match=f"{tmp_path / place} cannot be written: "):
        write_journal(tmp_path / place, [], sealed_head("r", [], None, at(0)))
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]
