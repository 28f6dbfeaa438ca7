"""Text in which nothing hides: what would not show is written as an escape."""

import json


def escaped(text: str) -> str:
    """Return `text` with what a terminal would act on, or not show, written as JSON escapes; newlines stay."""
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
