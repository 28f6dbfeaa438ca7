"""Where a run is at home: the folder, the root of its file tools, and the configuration that it was started under."""

from typing import Any

from pydantic import ValidationError

from workflows.types.record import Record

WORKPLACE_MEMO = "orga_folder"
"""The memo key under which the client of the embedded server writes it."""


class Workplace(Record):
    """A folder with its configuration."""

    folder: str
    """Where the command was given."""
    root: str
    """What file tools stay under, without links."""
    config: str | None = None
    """The file, where there is one."""
    digest: str = ""
    """Of that file's content."""
    mark: str = ""
    """Of root and path of the file, short: workers of other marks leave the run alone."""


def workplace_of(value: Any) -> Workplace | None:
    """Return what a memo holds, None where it holds nothing of the kind: whoever starts a run writes its memo."""
    try:
        return None if value is None else Workplace.model_validate(value)
    except ValidationError:
        return None
