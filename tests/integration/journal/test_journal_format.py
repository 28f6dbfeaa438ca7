"""Checks of an exported journal without a run or a server: by `orga verify`, and by the short checker in the docs."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orga.client.cli.main import run_command
from orga.client.journal.file import JournalFile, public_text, sealed_head, write_journal
from orga.client.proof.verify import FileVerification, verify_file
from orga.workflows.types.status import JournalEntry
from tests.support.programs.orga_command import ROOT
from tests.support.values.core import at
from tests.support.values.journals import a_journal

PAGE = ROOT / "docs" / "journal-format.md"
RUN = "agent-ä\u2028\N{SNOWMAN}"
MADE: list[tuple[str, int, dict[str, Any]]] = [
    ("Started", 0, {"task": "pay\n  \u2028 \x7f", "numbers": [1e16, 1e-7, 0.1, -0.0, 2**70, 1.0]}),
    ("ApprovalRequested", 1, {"kind": "call", "id": "a1", "arguments": '{"cents":900}'}),
    ("ApprovalResolved", 1, {"kind": "call", "id": "a1", "approved": True}),
    ("Terminated", 1, {"reason": "completed"}),
]


@dataclass
class Export:
    """A file and the key that signed it."""

    path: Path
    key: Ed25519PrivateKey

    @property
    def public(self) -> str:
        return public_text(self.key.public_key())

    def write(self, entries: list[JournalEntry], key: Ed25519PrivateKey | None) -> None:
        write_journal(self.path, entries, sealed_head(RUN, entries, key, at(60)))

    def edit(self, change: Callable[[list[str]], list[str]]) -> None:
        lines = self.path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        self.path.write_text("".join(f"{line}\n" for line in change(lines)), encoding="utf-8")


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """Use a folder without a server, where none may be started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "no" / "home"))
    monkeypatch.setenv("ORGA_TEMPORAL__ADDRESS", "127.0.0.1:1")
    found = Export(tmp_path / "run.jsonl", Ed25519PrivateKey.generate())
    found.write(a_journal(MADE), found.key)
    return found


def replaced(old: str, new: str) -> Callable[[Export], None]:
    return lambda export: export.edit(lambda lines: [line.replace(old, new) for line in lines])


def forged(export: Export) -> list[JournalEntry]:
    more = {"arguments": '{"cents":90000}'}
    return a_journal((event, number, {**data, **more} if "id" in data else data) for event, number, data in MADE)


ATTACKS: dict[str, Callable[[Export], object]] = {
    "an amount that was edited": replaced("900", "9"),
    "a number that was edited": replaced("0.1,", "0.11,"),
    "an agent that was edited": lambda export: export.edit(
        lambda lines: [lines[0].replace('"agent":"a"', '"agent":"b"'), *lines[1:]]
    ),
    "an entry that was dropped": lambda export: export.edit(lambda lines: [lines[0], *lines[2:]]),
    "two entries that were swapped": lambda export: export.edit(lambda lines: [lines[1], lines[0], *lines[2:]]),
    "a tail that was cut": lambda export: export.edit(lambda lines: lines[:-2]),
    "a tail that was cut before the head": lambda export: export.edit(lambda lines: [*lines[:-2], lines[-1]]),
    "half a line": lambda export: export.path.write_bytes(export.path.read_bytes()[:-40]),
    "an empty file": lambda export: export.path.write_bytes(b""),
    "a duplicate key": replaced('"iteration":1', '"iteration":9,"iteration":1'),
    "a hash within the data": replaced('"hash":"', '"hash":"0","hash":"'),
    "an edit with a rebuilt chain under the old signature": lambda export: export.edit(
        lambda lines: [*(entry.model_dump_json() for entry in forged(export)), lines[-1]]
    ),
    "an edit signed with another key": lambda export: export.write(forged(export), Ed25519PrivateKey.generate()),
    "an edit that nobody signed": lambda export: export.write(forged(export), None),
    "another run's name": lambda export: export.edit(
        lambda lines: [*lines[:-1], lines[-1].replace("agent-", "other-")]
    ),
    "a later date": replaced('"signed_at": "2026', '"signed_at": "2036'),
}


def checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    Path("check_journal.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-I", "check_journal.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_checker_of_the_docs_is_short_and_accepts_a_genuine_file(export: Export) -> None:
    done = checked("run.jsonl", export.public)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 entries of 'agent-")
    assert len(Path("check_journal.py").read_text(encoding="utf-8").splitlines()) <= 55


@pytest.mark.parametrize("attack", ATTACKS)
def test_both_checkers_reject_a_tampered_file(export: Export, attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = export.path.read_bytes()
    ATTACKS[attack](export)
    assert export.path.read_bytes() != before
    assert checked("run.jsonl", export.public).returncode == 1
    assert run_command(["verify", "--journal", "run.jsonl", "--key", export.public]) == 6
    output = "".join(capsys.readouterr())
    assert "Traceback" not in output
    assert "✗" in output or "is no journal entry" in output or "entry" in output


def test_a_file_alone_is_verified_and_its_missing_checks_are_named(
    export: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("audit.pub").write_text(export.public)
    assert run_command(["verify", "--journal", "run.jsonl", "--key", "audit.pub", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["id"], reported["ok"], reported["vouched_for"]) == (RUN, True, True)
    assert {check["name"] for check in reported["checks"]} == {"chain", "laws", "head"}
    assert {each["name"] for each in reported["not_checked"]} == {"replay", "gate", "contexts", "counters"}
    assert all("history" in each["why"] for each in reported["not_checked"])


def test_an_export_of_a_live_run_says_that_it_had_not_ended(export: Export, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise somebody could hand in an early export, genuine and signed, as the whole run."""
    export.write(a_journal(MADE[:2]), export.key)
    assert run_command(["verify", "--journal", "run.jsonl", "--key", export.public]) == 0
    shown = capsys.readouterr().out
    assert "had not ended when this was written" in shown
    assert "ends as" not in shown


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_file_without_a_trusted_key_has_its_own_exit_code(
    export: Export, is_signed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    export.write(a_journal(MADE), export.key if is_signed else None)
    assert run_command(["verify", "--journal", "run.jsonl"]) == 8
    assert "signature not checked" in re.sub(" +", " ", capsys.readouterr().out)


def test_a_named_key_overrides_the_configuration_next_to_the_file(export: Export) -> None:
    other = Ed25519PrivateKey.generate()
    Path("orga.toml").write_text(f'[audit]\ntrusted_keys = ["{public_text(other.public_key())}"]\n')
    export.write(forged(export), other)
    assert run_command(["verify", "--journal", "run.jsonl", "--key", export.public]) == 6


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        pytest.param([*MADE, MADE[1]], "comes after the end", id="more than an end"),
        pytest.param(MADE[1:], "begins with", id="no beginning"),
        pytest.param([MADE[0], *MADE[2:]], "was never asked", id="an answer without a question"),
        pytest.param(
            [MADE[0], ("DelegationEnded", 1, {"workflow_id": "x"})], "was not started", id="an end without a start"
        ),
    ],
)
def test_a_signed_but_impossible_journal_is_rejected(
    export: Export, made: list[tuple[str, int, dict[str, Any]]], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    export.write(a_journal(made), export.key)
    assert run_command(["verify", "--journal", "run.jsonl", "--key", export.public]) == 6
    assert fault in capsys.readouterr().out


def test_ctrl_c_ends_the_check_of_a_file(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a large export takes minutes."""

    def pressing_ctrl_c(exported: JournalFile, keys: list[Ed25519PublicKey]) -> FileVerification:
        signal.raise_signal(signal.SIGINT)
        return verify_file(exported, keys)

    monkeypatch.setattr("orga.client.cli.inspect.verify.verify_file", pressing_ctrl_c)
    assert run_command(["verify", "--journal", "run.jsonl", "--key", export.public]) == 130
