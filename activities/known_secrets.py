"""Secrets that a worker knows, hidden in whatever it hands on, however it came by them."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from orga.activities.environment_secrets import secret_values
from orga.activities.ports import ToolError
from orga.activities.secret_spellings import spellings

MIN_GUESSED_CHARS = 8
"""Of a value that counts as a secret by where it stands; hiding shorter ones would hole every text."""

MIN_SECRET_CHARS = 6
"""Of a value that somebody said is a secret."""

HIDDEN = "[redacted]"

_BEGUN_CHARS = 4
"""From so many characters on the beginning of a secret is cut off the end of a text."""

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

    @classmethod
    def of(cls, values: Iterable[str], least: int = MIN_SECRET_CHARS) -> "KnownSecrets":
        """Take values that have at least so many characters, in every spelling that a text may have of them."""
        worth = {value for value in values if len(value) >= least}
        return cls(tuple(sorted({form for value in worth for form in spellings(value)}, key=len, reverse=True)))

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

    @property
    def longest(self) -> int:
        """The characters of the longest of them."""
        return max(map(len, self.texts), default=0)

    def hidden(self, text: str, *, is_cut: bool = False) -> str:
        """Return the text without them, nor, where its end was cut off, with the beginning of one."""
        text = _WRAPPED.sub(self._unwrapped, text) if self.texts else text
        for secret in self.texts:
            text = text.replace(secret, HIDDEN)
        return text[: len(text) - self._begun(text)] if is_cut else text

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
        return max((_begun_of(form, text) for form in self.texts), default=0)

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
    while (at := text.find(form[:_BEGUN_CHARS], at)) >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


NO_SECRETS = KnownSecrets()
