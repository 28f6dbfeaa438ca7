"""`orga knowledge import-conventions`: what a project's own files say of how things are done in it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orga.activities.adapters.knowledge.conventions.changes import FileChange, FileFate, TooMany, import_conventions
from orga.activities.adapters.knowledge.conventions.files import Place
from orga.activities.adapters.knowledge.documents import Owned
from orga.client.cli.counting import counted
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.knowledge.opened import opened_store
from orga.client.cli.knowledge.owners import UNTRUSTED, Agent, Scope, Tenant, Untrusted, User, owned
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.output import json_result, note, result
from orga.client.cli.progress_line import progress_line
from orga.client.cli.terminal_text import on_one_line

_PROJECT = re.compile(r"[\w.-]{1,100}")
_PATH_CHARS = 300


def import_(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The project's folder, or one in it; else this one.")
    ] = Path(),
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory that PATH is for agents; else as it lies below the root of the project, or the root.",
            show_default=False,
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name; else that of its folder.", show_default=False)
    ] = None,
    scope: Scope = None,
    user: User = None,
    tenant: Tenant = None,
    agent: Agent = None,
    untrusted: Untrusted = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Read AGENTS.md, CLAUDE.md, CONTRIBUTING.md, .editorconfig, pyproject.toml, package.json and the like, wherever
    they lie, and store what they say with its directory and language.

    Called again, it finds what has changed: a file's conventions take the place of those before, and those of a file
    that is gone are forgotten. Files that git ignores are left out.

    Example: orga knowledge import-conventions

    Example: orga knowledge import-conventions ../web --at web --untrusted
    """
    level, owner = owned(scope, user=user, tenant=tenant, agent=agent)
    if not path.is_dir():
        raise UsageError(f"{path} is no folder; name the folder of a project")
    wish = _Wish(path.resolve(), at, project, Owned(level, owner, (UNTRUSTED,) if untrusted else ()))
    return completed(_import(wish, config, as_json=json))


class _Wish:
    """What is read, and where it goes."""

    def __init__(self, path: Path, at: str | None, project: str | None, whose: Owned) -> None:
        self.path = path
        self._at = at
        self._project = project
        self._whose = whose

    def place(self, root: Path) -> Place:
        """Return the place below the root of file tools.

        Raises:
            UsageError: There is none.
        """
        is_inside = self.path.is_relative_to(root)
        at = self._at if self._at is not None else self.path.relative_to(root).as_posix() if is_inside else ""
        parts = [part for part in at.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise UsageError(f"--at {at!r}: name a directory below the root, without ..")
        project = self._project or re.sub(r"[^\w.-]", "-", (root if is_inside else self.path).name)[:100] or "project"
        if not _PROJECT.fullmatch(project):
            raise UsageError(f"--project {project!r}: letters, digits, '.', '-' and '_' only, at most 100")
        return Place(project, "/".join(parts), self._whose.scope, self._whose.owner, self._whose.taint)


async def _import(wish: _Wish, config: Path | None, *, as_json: bool) -> int:
    changes: list[FileChange] = []
    async with opened_store(config) as here:
        place = wish.place(here.root)
        with progress_line() as report:
            try:
                found = import_conventions(
                    here.store, wish.path, place, lambda done, of: report(f"{done} of {of} files are read")
                )
                async for each in found:
                    changes.append(each)
            except TooMany as error:
                raise UsageError(str(error)) from None
        if as_json:
            json_result({"project": place.project, "at": place.at, "files": [asdict(each) for each in changes]})
        else:
            _tell(changes)
        await here.store.purge()  # of nothing too: it may be what was replaced before and could not be wiped then
    return 0


_TOLD: dict[FileFate, str] = {
    "added": "added",
    "changed": "changed, stored anew",
    "unchanged": "unchanged",
    "removed": "gone, forgotten",
    "unreadable": "not read, left as it was",
}


def _tell(changes: Sequence[FileChange]) -> None:
    if not changes:
        note("no file here holds conventions; see: orga knowledge import-conventions --help")
        return
    for each in changes:
        count = counted(each.items, "convention")
        why = f": {on_one_line(each.detail, _PATH_CHARS)}" if each.detail else ""
        result(f"{_TOLD[each.change]:<24}  {on_one_line(each.path, _PATH_CHARS)}  ({count}){why}")
    sums = Counter(each.change for each in changes)
    note(", ".join(f"{count} {change}" for change, count in sums.items()))
