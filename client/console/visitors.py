"""Names, roles and tenants of visitors, and the file of hashed tokens that names them."""

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from orga.client.errors import OrgaError
from orga.workflows.types.control import MAX_SENDER_CHARS
from orga.workflows.types.record import CheckedInput, validation_problems
from orga.workflows.types.text import clean_text, one_line

Role = Literal["viewer", "operator", "approver", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "approver", "admin")
"""Each role has the rights of those before it."""

_TOKEN_BYTES = 32
_OTHERS = 0o077


def roles_up_to(role: Role) -> tuple[Role, ...]:
    return ROLES[: ROLES.index(role) + 1]


def visitor_name(text: str) -> str:
    """Return a name as the journal has it, on one line, or "" if there is none."""
    return one_line(clean_text(text), MAX_SENDER_CHARS)


@dataclass(frozen=True)
class Visitor:
    """The authenticated sender of a request."""

    name: str
    """The name in `by` of the journal."""
    roles: tuple[Role, ...] = ROLES
    tenants: frozenset[str] | None = None
    """The tenants whose runs exist for the visitor. None means all runs."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The name and the tenants: one name may be used in several tenants."""
        return self.name, *sorted(self.tenants or ())

    def may(self, role: Role) -> bool:
        return role in self.roles


class _Entry(CheckedInput):
    """A name with a token."""

    name: str = Field(min_length=1, max_length=MAX_SENDER_CHARS)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of its token. A token is random, so its digest does not reveal it."""
    role: Role = "viewer"
    tenants: tuple[str, ...] | None = None


class _TokenList(CheckedInput):
    tokens: tuple[_Entry, ...] = ()


class TokenFile:
    """A file of names with hashed tokens. It is read again whenever it changes, so a removed token is not valid."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            OrgaError: It cannot be read.
        """
        self._path, self._seen = path, (0, 0)
        self._visitors: dict[str, Visitor] = {}
        self._refresh()

    def visitor(self, token: str) -> Visitor | None:
        """Return the visitor with this token. While the file cannot be read, nobody enters."""
        try:
            self._refresh()
        except OrgaError:
            return None
        return self._visitors.get(sha256(token.encode()).hexdigest())

    def add(self, name: str, role: Role, tenants: Sequence[str]) -> str:
        """Add a name and return its token, which is stored nowhere."""
        if visitor_name(name) != name or not name:
            raise OrgaError(f"--add-token: {name!r} must be one line of at most {MAX_SENDER_CHARS} characters")
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        added = _Entry(name=name, sha256=sha256(token.encode()).hexdigest(), role=role, tenants=tuple(tenants) or None)
        known = _read(self._path)
        text = _TokenList(tokens=(*known.tokens, added)).model_dump_json(indent=1)
        _write_private(self._path, text)
        return token

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
        except OSError:
            found = None
        seen = (found.st_mtime_ns, found.st_size) if found else (0, 0)
        if seen != self._seen:
            self._visitors = {each.sha256: _visitor(each) for each in _read(self._path).tokens}
            self._seen = seen
        elif found is None:
            self._visitors = {}


def _visitor(entry: _Entry) -> Visitor:
    tenants = None if entry.tenants is None else frozenset(entry.tenants)
    return Visitor(entry.name, roles_up_to(entry.role), tenants)


def _read(path: Path) -> _TokenList:
    try:
        text, mode = path.read_text(), path.stat().st_mode
    except FileNotFoundError:
        return _TokenList()
    except (OSError, UnicodeDecodeError) as error:
        raise OrgaError(f"--tokens: {path} cannot be read ({error})") from None
    if mode & _OTHERS:
        raise OrgaError(f"--tokens: others may read {path}. Run: chmod 600 {path}")
    try:
        return _TokenList.model_validate(json.loads(text), extra="forbid")
    except ValidationError as error:
        raise OrgaError(f"--tokens: {path}: {'; '.join(validation_problems(error))}") from None
    except ValueError:
        raise OrgaError(f"--tokens: {path} is no JSON. Make it with: orga console --add-token NAME") from None


def _write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner can read."""
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        new.replace(path)
    except OSError as error:
        raise OrgaError(f"{path} cannot be written: {error.strerror}. Name a file in a folder of yours") from None


def owner_token(path: Path) -> str:
    """Return the token of the person who starts the console. It stays the same, so that open pages stay logged in."""
    try:
        if not path.stat().st_mode & _OTHERS and (known := path.read_text().strip()):
            return known
    except (OSError, UnicodeDecodeError):
        pass
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    _write_private(path, token)
    return token
