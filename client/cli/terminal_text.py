"""Text of a model or a tool, made harmless for a terminal."""

import re

_CONTROL = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # whole escape sequences, so that no `[31m` stays behind
    "|\x1b[\\]P^_X].*?(?:\x07|\x1b\\\\)"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]",
    re.DOTALL,
)
"""C0 but tab and newline, C1, what turns the writing direction or is invisible, halves of characters."""


def harmless(text: str) -> str:
    """Return `text` without anything that a terminal would act on; tabs and newlines stay."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def on_one_line(text: str, chars: int = 120) -> str:
    """Return harmless text on one line of at most `chars` characters."""
    flat = " ".join(harmless(text[: chars * 8]).split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"
