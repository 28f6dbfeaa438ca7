"""Text of models and tools cannot control a terminal."""

import json

import pytest

from orga.activities.text.characters import harmless_text
from orga.client.cli.inspect.audit import audit_summary
from orga.client.cli.shown.text import count_text, terminal_line, write_json, write_note
from orga.client.proof.audit import RunAudit


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\tb\nc", "a\tb\nc", id="tabs and newlines are kept"),
        pytest.param("\x1b[31mred\x1b[0m", "red", id="colours are removed"),
        pytest.param("\x1b]0;owned\x07x", "x", id="a window title is removed with its text"),
        pytest.param("\x1b]8;;http://e\x1b\\link", "link", id="a hyperlink keeps only its text"),
        pytest.param("a\x00\x08b\x9b", "ab", id="lone control characters are removed"),
        pytest.param("a\x1bcb", "ab", id="a sequence of two characters is removed"),
        pytest.param("safe\u202egpj.exe", "safegpj.exe", id="no override of the writing direction"),
        pytest.param("safe\u061c\u200f.exe", "safe.exe", id="no direction mark"),
        pytest.param("progress\rdone", "progressdone", id="no overwriting of a line"),
        pytest.param("a\r\nb", "a\nb", id="Windows line ends are line ends"),
        pytest.param("[bold]x[/bold]", "[bold]x[/bold]", id="markup is just text"),
        pytest.param("half \ud83d", "half ", id="lone surrogates are removed"),
        pytest.param("Grüße 你好 👋", "Grüße 你好 👋", id="other scripts are kept"),
    ],
)
def test_text_is_made_harmless(text: str, shown: str) -> None:
    assert harmless_text(text) == shown


def test_one_line_is_bounded_however_long_the_text() -> None:
    assert len(terminal_line("x\n" * 10**6, 40)) == 40


def test_json_on_a_terminal_is_escaped_and_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b[31m \x9b \x7f \u202e ü 👋\n"}
    write_json(value)
    written = capsys.readouterr().out
    assert json.loads(written) == value
    assert all(character.isprintable() or character == "\n" for character in written)
    assert "ü 👋" in written


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        pytest.param(count_text(1, "tool"), "1 tool", id="one"),
        pytest.param(count_text(0, "tool"), "0 tools", id="none"),
        pytest.param(count_text(2, "policy", "policies"), "2 policies", id="a plural of its own"),
        pytest.param(audit_summary([RunAudit("a")])[0], "0 proposals of 1 run: nothing was proposed", id="one run"),
    ],
)
def test_counts_are_shown_in_singular_or_plural(expected: str, shown: str) -> None:
    assert expected == shown


def test_no_lines_write_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write_note()
    write_note("", "one")
    assert capsys.readouterr().err == "\none\n"
