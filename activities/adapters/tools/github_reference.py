"""References to issues and pull requests: `#42`, `PR #55`, `owner/name#42`."""

import re
from dataclasses import dataclass

from orga.activities.ports import ToolError

_REFERENCE = re.compile(
    r"\s*(?:(?:PR|issue|pull request)\b\s*)?"
    r"(?:(?P<owner>[a-z0-9][a-z0-9-]{0,38})/(?P<name>(?!\.{1,2}#)[a-z0-9_.-]{1,100}))?#?(?P<number>[0-9]{1,10})\s*",
    re.I | re.ASCII,
)
DESCRIPTION = "`#42` in the default repository, or `owner/name#42`."


@dataclass(frozen=True)
class NumberedItem:
    """An issue or pull request of a repository."""

    repo: str
    number: int

    @property
    def path(self) -> str:
        """The repository's path in the API."""
        return f"/repos/{self.repo}"

    def __str__(self) -> str:
        return f"{self.repo}#{self.number}"


def item_of(reference: str, default_repo: str | None) -> NumberedItem:
    """Return what a reference names.

    Raises:
        ToolError: Kind InvalidArguments, when it is none, or names no repository and there is no default.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or (match["owner"] and "#" not in reference):
        why = f"{reference[:80]!r} is no reference; write #42 or owner/name#42"
        raise ToolError(why, kind="InvalidArguments")
    repo = f"{match['owner']}/{match['name']}" if match["owner"] else default_repo
    if repo is None:
        why = f"{reference[:80]!r} names no repository; write owner/name#{match['number']}, or set [tools.github] repo"
        raise ToolError(why, kind="InvalidArguments")
    return NumberedItem(repo, int(match["number"]))
