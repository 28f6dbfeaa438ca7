"""Text in which nothing hides and nothing ends a line: what would not show is written as an escape."""

import json
import re

_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""What Python holds for printable, and no screen shows: fillers, blanks, variation selectors."""

SUMMARY_CHARS = 100
"""Of a line in the Temporal UI."""

_SPACES = re.compile(r"(?<= ) ")
_BREAKS = re.compile(r"[ \t\r\n]+")


def escaped(text: str) -> str:
    """Return `text` with what a terminal would act on, or not show, written as JSON escapes; newlines stay."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)
    return text if text.isascii() else _UNSEEN.sub(lambda found: _escape(found[0]), text)


def as_line(text: str) -> str:
    """Return `text` as exactly one line."""
    return escaped(text).replace("\n", "\\n")


def in_full(text: str) -> str:
    """Return a field exactly as it is, as a part of one line: two spaces, which part columns, are none any more."""
    return _SPACES.sub(r"\\u0020", as_line(text))


def one_line(text: str, chars: int = SUMMARY_CHARS) -> str:
    """Return words on one line of at most `chars` characters, their spaces and line breaks as single spaces."""
    flat = as_line(_BREAKS.sub(" ", text[: chars * 8]).strip())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


def can_be_typed(name: str) -> bool:
    """Return whether a name in a command is what it looks like: nothing hides in it, and it cannot become an option."""
    return bool(name) and name == name.strip() and name == in_full(name) and not name.startswith("-")


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
