"""If our tools cut a text in the middle of a known secret, neither half is passed on."""

from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.tools.file_search import SearchText
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.run_command import RunCommand
from orga.activities.calls.tools import _error_message, _without_secrets
from orga.activities.ports import ToolError
from orga.activities.text.secrets import REDACTED, KnownSecrets
from tests.support.tools.calls import CONTEXT

SECRET = "sk-live-0123456789abcdefghijklmnopqrstuvwxyz"
KNOWN = KnownSecrets.from_values([SECRET])
PARTS = range(4, len(SECRET) - 3, 5)
"""How many characters of the secret are before the cut."""


def has_part(text: str) -> bool:
    return any(SECRET[at : at + 4] in text for at in range(len(SECRET) - 3))


async def printed(root: Path, code: str) -> str:
    tool: Any = RunCommand(FileRoot(root), ["python3"])
    try:
        output = await tool.call({"command": ["python3", "-c", code]}, CONTEXT)
    except ToolError as error:
        return _error_message(KNOWN, str(error))
    return _without_secrets(output.content, KNOWN)


@pytest.mark.parametrize("part", PARTS)
async def test_an_output_cut_in_its_middle_shows_no_part(tmp_path: Path, part: int) -> None:
    head = await printed(tmp_path, f"print('-' * (4000 - {part}) + '{SECRET}' + '-' * 20000)")
    tail = await printed(tmp_path, f"print('-' * 20000 + '{SECRET}' + '-' * (8000 - 1 - {part}))")
    for text in (head, tail):
        assert "bytes left out ...]" in text
        assert not has_part(text)


@pytest.mark.parametrize("part", PARTS)
async def test_the_last_output_of_a_failed_command_shows_no_part(tmp_path: Path, part: int) -> None:
    text = await printed(tmp_path, f"print('-' * 4000 + '{SECRET}' + '-' * (2500 - {part})); raise SystemExit(1)")
    assert "characters of its output" in text
    assert not has_part(text)


@pytest.mark.parametrize("part", PARTS)
async def test_a_long_line_shows_no_part(tmp_path: Path, part: int) -> None:
    (tmp_path / "a.txt").write_text("." * (16_000 - part) + SECRET + "." * 50)
    read = await ReadFile(FileRoot(tmp_path)).call({"path": "a.txt"}, CONTEXT)
    assert "[line 1 is cut at" in read.content
    assert not has_part(_without_secrets(read.content, KNOWN))


@pytest.mark.parametrize("part", PARTS)
async def test_a_found_line_shows_no_part(tmp_path: Path, part: int) -> None:
    (tmp_path / "a.txt").write_text(
        f"needle{'.' * (294 - part)}{SECRET}{'.' * 50}\n{'.' * 900}needle{SECRET}{'.' * 300}"
    )
    found = await SearchText(FileRoot(tmp_path)).call({"query": "needle"}, CONTEXT)
    text = _without_secrets(found.content, KNOWN)
    assert "…" in text
    assert not has_part(text)


def test_a_text_without_a_cut_keeps_parts_that_look_like_a_secret() -> None:
    assert KNOWN.redact_at_cuts(f"wxyz and {SECRET[:8]}") == f"wxyz and {SECRET[:8]}"
    assert KNOWN.redact_at_cuts(f"{REDACTED}\n[cut at line 1 of 2]") == f"{REDACTED}\n[cut at line 1 of 2]"
