"""An answer is rendered at a terminal, written verbatim to a pipe, and cannot control a terminal."""

import io
import re
import sys

import pytest

from orga.client.cli.live.watch import show_answer

ANSWER = "# Limits\n\nThere are **five**, see [the guide](https://example.com/limits).\n\n- `max_iterations`\n"

HOSTILE = (
    "&#27;[2J &#x1b;]8;;https://evil.example&#x1b;\\here &#8238;evil\n\n"
    "[&#27;[31mred](https://evil.example/&#27;]52;c;aGk=&#7; '&#155;2J')\n\n"
    "```py&#27;[2J\n\x1b[2J&#27;[2J\n```\n\n| a&#27;[2J | b |\n|---|---|\n| \x9b2J | `\x1b[2J` |\n\n"
    "![&#27;[2J](&#27;[2J)\n\n<b>\x1b[2J&#27;[2J</b>\n"
)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(text: str, monkeypatch: pytest.MonkeyPatch, term: str = "xterm-256color") -> str:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "80")
    show_answer(text)
    return terminal.getvalue()


def test_a_terminal_shows_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(ANSWER, monkeypatch)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "**" not in bare
    assert " • max_iterations" in bare
    assert "the guide (https://example.com/limits)" in bare
    assert "\x1b[1m" in text


@pytest.mark.parametrize("text", [ANSWER, "plain\n  text  with   blanks"])
def test_a_pipe_gets_the_answer_verbatim(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(text)
    assert capsys.readouterr().out == text + "\n"


def test_a_dumb_terminal_gets_the_answer_verbatim(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(ANSWER, monkeypatch, "dumb") == ANSWER + "\n"


def test_entities_in_markdown_cannot_control_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """`&#27;` becomes a control character only after parsing."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown(HOSTILE, monkeypatch))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert "here" in text
