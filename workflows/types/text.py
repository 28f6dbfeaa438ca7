"""Text that always serialises: halves of a character joined or replaced, NUL replaced."""

from math import isfinite
from typing import Any, cast

REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """Return `text` as valid UTF-8 without NUL; two halves of one character that stand side by side are joined."""
    if text.isascii():
        return text.replace("\x00", REPLACEMENT)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", REPLACEMENT)


def clean_json(value: Any) -> Any:
    """Return a JSON value with every string and key cleaned; NaN and the infinities, which JSON lacks, become null."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [clean_json(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not isfinite(value) else value
