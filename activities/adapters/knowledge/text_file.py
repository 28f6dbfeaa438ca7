"""Reading a file of a project as a text: bounded, and never out of its root."""

from pathlib import Path

from orga.activities.adapters.tools.root import Root
from orga.activities.ports import ToolError
from orga.workflows.types.text import clean_text


class Unreadable(ValueError):
    """A file cannot be read, or is not what its name says. The text says why."""


def text_of(root: Path, path: str, max_bytes: int) -> str:
    """Return the text of a file; links are followed within the root alone.

    Raises:
        Unreadable: It is no regular file there, no text, or too large.
    """
    try:
        with Root(root).open_file(path) as file:
            data = file.read(max_bytes + 1)
    except ToolError as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(error.strerror or "it cannot be read") from None
    if len(data) > max_bytes:
        raise Unreadable(f"it is larger than {max_bytes // 1024:,} KiB")
    if b"\0" in data:
        raise Unreadable("it is no text")
    return clean_text(data.decode("utf-8-sig", "replace"))
