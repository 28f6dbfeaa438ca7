"""Variables of the worker's environment that a tool is given, and how they are kept out of what it returns."""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote

from activities.known_secrets import HIDDEN

MIN_SECRET_CHARS = 6
"""Shorter values are no secrets worth the name, and hiding them would hole every text."""

_BEGUN_CHARS = 4
"""From so many characters on the beginning of a secret is cut off the end of a text."""


@dataclass(frozen=True)
class Secrets:
    """Values by variable. Its representation shows none."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @classmethod
    def of(cls, variables: Iterable[str], env: Mapping[str, str]) -> "Secrets":
        """Take the variables.

        Raises:
            ValueError: One is not set.
        """
        wanted = list(variables)
        if missing := [name for name in wanted if not env.get(name)]:
            raise ValueError(f"the environment has no {' and no '.join(missing)}; set it where the worker starts")
        return cls({name: env[name] for name in wanted})

    def hidden(self, text: str, *, is_cut: bool = False) -> str:
        """Return a text without them, nor, where its end was cut off, with the beginning of one."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text[: len(text) - self._begun(text)] if is_cut else text

    def _begun(self, text: str) -> int:
        """Return how many characters at the end are the beginning of one."""
        return max(
            (size for form in self._forms for size in range(_BEGUN_CHARS, len(form)) if text.endswith(form[:size])),
            default=0,
        )

    @cached_property
    def _forms(self) -> list[str]:
        worth = [value for value in self.values.values() if len(value) >= MIN_SECRET_CHARS]
        return sorted({form for value in worth for form in _spellings(value)}, key=len, reverse=True)


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, as in JSON, in a URL and in base64."""
    yield value
    yield from (json.dumps(value, ensure_ascii=ascii)[1:-1] for ascii in (True, False))
    yield quote(value, safe="")
    yield b64encode(value.encode(errors="replace")).decode().rstrip("=")
