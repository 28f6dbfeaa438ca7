"""Secrets that a worker knows, hidden in whatever it hands on, however it came by them."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from orga.activities.environment_secrets import secret_values
from orga.activities.ports import ToolError
from orga.activities.secret_readings import spelled
from orga.activities.secret_spellings import encoded_once, spellings

MIN_GUESSED_CHARS = 8
"""Of a value that counts as a secret by where it stands; hiding shorter ones would hole every text."""

MIN_SECRET_CHARS = 6
"""Of a value that somebody said is a secret."""

HIDDEN = "[redacted]"

_PART_CHARS = 4
"""From so many characters on a part of a secret is left out where a cut has parted it."""

_ENDS_EARLY = re.compile(r"\n\[(?:cut at |line \d+ is cut |\.\.\. [\d,]+ bytes left out )|…(?=\n|\Z)")
"""What our tools write behind a text that they cut at its end."""

_BEGINS_LATE = re.compile(r"bytes left out \.\.\.\]\n|characters of its output:\n|[:-] …")
"""And ahead of one that they cut at its beginning."""

_BETWEEN = r"(?:(?:\\r)?\\n)?[ \t\"'+,.&]{0,6}(?:\r?\n[ \t]{0,40}(?:\d{1,9}\t|> |[\"'])?|(?<=\\n))"
"""The end of a line, as it is or within a string of a source, and what stands before the next: its number, a quote."""

_WRAPPED = re.compile(rf"(?<![\w+/=-])(?:[\w+/-]{{16,}}{_BETWEEN})+[\w+/=-]+", re.ASCII)
"""Lines as `base64`, MIME and PEM break them."""

_SEPARATOR = re.compile(_BETWEEN, re.ASCII)

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class KnownSecrets:
    """Texts to hide, the longest first."""

    texts: tuple[str, ...] = field(default=(), repr=False)
    decoded: tuple[str, ...] = field(default=(), repr=False)
    """What is searched for once a notation was decoded."""

    @classmethod
    def of(cls, values: Iterable[str], least: int = MIN_SECRET_CHARS) -> "KnownSecrets":
        """Take values that have at least so many characters, in every spelling that a text may have of them."""
        worth = {value for value in values if len(value) >= least}
        texts = sorted({form for value in worth for form in spellings(value)}, key=len, reverse=True)
        return cls(tuple(texts), tuple({form for value in worth for form in (value, *encoded_once(value))}))

    @classmethod
    def of_environment(
        cls, environment: Mapping[str, str] = os.environ, also: Iterable[str] = (), beside: Iterable[str] = ()
    ) -> "KnownSecrets":
        """Take what its variables hold.

        Args:
            environment: Of the process.
            also: Further variables that hold secrets, whatever their names end in.
            beside: Values that stand elsewhere: in a file that a variable names.
        """
        return cls.of([*secret_values(environment, also), *beside], MIN_GUESSED_CHARS)

    @cached_property
    def longest(self) -> int:
        """The characters of the longest of them."""
        return max(map(len, self.texts), default=0)

    def hidden(self, text: str, *, is_cut: bool = False) -> str:
        """Return the text without them, nor, where its end was cut off, with the beginning of one."""
        text = _WRAPPED.sub(self._unwrapped, text) if self.texts else text
        for secret in self.texts:
            text = text.replace(secret, HIDDEN)
        for start, end in reversed(spelled(text, self.decoded, self._as_bytes)):
            text = text[:start] + HIDDEN + text[end:]
        return text[: len(text) - self._begun(text)] if is_cut else text

    def hidden_at_cuts(self, text: str) -> str:
        """Return the text of one of our tools without what is left of a secret where the tool has cut it in two."""
        if not self.texts:
            return text
        ends = {mark.start() for mark in _ENDS_EARLY.finditer(text)}
        begins = {mark.end() for mark in _BEGINS_LATE.finditer(text)}
        pieces: list[str] = []
        for start, end in pairwise(sorted({0, len(text), *ends, *begins})):
            piece = text[start:end]
            piece = piece[self._ended(piece) :] if start in begins else piece
            pieces.append(piece[: len(piece) - self._begun(piece)] if end in ends else piece)
        return "".join(pieces)

    def hidden_in(self, record: R) -> R:
        """Return a record whose texts and keys are without them: mostly the record itself."""
        if not self.texts:
            return record
        value = record.model_dump(mode="json", exclude_unset=True)
        fresh = self._hidden_in(value)
        return record if fresh == value else type(record).model_validate(fresh)

    def left_out_of(self, error: ToolError) -> ToolError:
        """Return the error without them."""
        return ToolError(self.hidden(str(error)), kind=error.kind, retryable=error.retryable, acted=error.acted)

    def _unwrapped(self, found: re.Match[str]) -> str:
        """Return lines of base64 as one where a secret stands across their ends."""
        joined = _SEPARATOR.sub("", found[0])
        return joined if any(secret in joined for secret in self.texts) else found[0]

    def _begun(self, text: str) -> int:
        """Return how many characters at the end are the beginning of one."""
        if not self._first_parts.search(text, max(len(text) - self.longest, 0)):
            return 0
        return max((_begun_of(form, text) for form in self.texts), default=0)

    def _ended(self, text: str) -> int:
        """Return how many characters at the beginning are the end of one."""
        first = text[:_PART_CHARS]
        return max((_ended_of(form, first, text) for form in self.texts if first in form), default=0)

    @cached_property
    def _as_bytes(self) -> tuple[str, ...]:
        return tuple(text.encode(errors="replace").decode("latin-1") for text in self.decoded)

    @cached_property
    def _first_parts(self) -> re.Pattern[str]:
        return re.compile("|".join(sorted({re.escape(form[:_PART_CHARS]) for form in self.texts})))

    def _hidden_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, list):
            return [self._hidden_in(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {self.hidden(key): self._hidden_in(item) for key, item in pairs}
        return value


def _begun_of(form: str, text: str) -> int:
    at = max(len(text) - len(form) + 1, 0)
    while (at := text.find(form[:_PART_CHARS], at)) >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


def _ended_of(form: str, first: str, text: str) -> int:
    at = 0
    while len(first) == _PART_CHARS and (at := form.find(first, at)) >= 0:
        if text.startswith(form[at:]):
            return len(form) - at
        at += 1
    return 0


NO_SECRETS = KnownSecrets()
