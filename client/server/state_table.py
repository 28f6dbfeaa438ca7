"""Small tables of texts in our state folder, the user's alone."""

import json
from pathlib import Path
from typing import cast

from orga.client.errors import OrgaError
from orga.client.server.drafts import write_whole
from orga.client.server.home import prepared_home


class UnreadableTable(OrgaError):
    """A table that somebody has to look at."""


def read_table(path: Path) -> dict[str, str]:
    """Return the table; an empty one where none is.

    Raises:
        UnreadableTable: It is there and cannot be read.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableTable(f"{path}: cannot be read ({error}); mend or remove it") from None
    if not isinstance(read, dict):
        raise UnreadableTable(f"{path}: is no table; mend or remove it")
    return cast("dict[str, str]", read)


def write_table(path: Path, table: dict[str, str]) -> None:
    """Replace the table; who reads it meanwhile sees the old one or the new."""
    prepared_home()
    write_whole(path, json.dumps(table, indent=1, sort_keys=True).encode())
