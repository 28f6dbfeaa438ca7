"""Secrets that a worker knows, hidden in whatever it hands to a history, however it came by it."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pydantic import BaseModel

MIN_SECRET_CHARS = 8
"""Shorter values are no secrets worth the name, and hiding them would hole every text."""

HIDDEN = "[redacted]"

_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|password|passwd|passphrase|credentials?|headers)$")

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class KnownSecrets:
    """Texts to hide, the longest first."""

    texts: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ, also: Iterable[str] = ()) -> "KnownSecrets":
        """Take the variables whose name ends as a secret's does (`OPENAI_API_KEY`, `OTEL_EXPORTER_OTLP_HEADERS`).

        Args:
            environment: Of the process.
            also: Further variables that hold secrets, whatever their names end in.
        """
        named = {*filter(_SECRET_NAME.search, environment), *also}
        values = {environment.get(name, "") for name in named}
        worth = {value for value in values if len(value) >= MIN_SECRET_CHARS}
        return cls(tuple(sorted({form for value in worth for form in _forms(value)}, key=len, reverse=True)))

    def hidden(self, text: str) -> str:
        """Return the text without them."""
        for secret in self.texts:
            text = text.replace(secret, HIDDEN)
        return text

    def hidden_in(self, record: R) -> R:
        """Return a record whose texts and keys are without them: mostly the record itself."""
        if not self.texts:
            return record
        value = record.model_dump(mode="json", exclude_unset=True)
        fresh = self._hidden_in(value)
        return record if fresh == value else type(record).model_validate(fresh)

    def _hidden_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, list):
            return [self._hidden_in(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {self.hidden(key): self._hidden_in(item) for key, item in pairs}
        return value


def _forms(value: str) -> set[str]:
    """Return the value as it is, in JSON, in Python's representation of something, and in one of these in another."""
    once = _escaped(value)
    return once.union(*map(_escaped, once))


def _escaped(value: str) -> set[str]:
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}


NO_SECRETS = KnownSecrets()
