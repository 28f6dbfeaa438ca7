r"""A regular expression of a user, matched in time linear in the text whatever it says.

Python's own `re` backtracks: `(a+)+$` on thirty letters takes minutes, and a workflow task that takes two seconds is
retried for ever. Refusing nested quantifiers would not do, since `\w*\w*\w*x` is cubic without any. RE2 never
backtracks, and it is as deterministic as `re` is. What is left are many matches, each of which may look at the rest of
its line, and large programs: `Fuel` bounds the two together.
"""

from collections.abc import Iterator
from typing import Any

import re2

_RE2: Any = re2
"""The library has no types of its own."""

_MAX_MEMORY = 1 << 16
"""Room for some 2,700 instructions; what needs more is refused."""


def compiled(pattern: str | bytes, **options: bool | int) -> Any:
    """Return a pattern of RE2, with the library's options by their names.

    Raises:
        ValueError: It is none, or too large.
    """
    wanted = _RE2.Options()
    wanted.log_errors = False
    for name, value in options.items():
        setattr(wanted, name, value)
    try:
        return _RE2.compile(pattern, wanted)
    except _RE2.error as error:
        why = error.args[0].decode(errors="replace")
        raise ValueError(f"is no pattern: {why} (RE2 syntax: no look-around, no back-references)") from None


class Fuel:
    """Work that is left, in characters times instructions; the unit took 8 ns at worst."""

    def __init__(self, units: int) -> None:
        self._left = units

    def spend(self, units: int) -> bool:
        """Take `units`; False once there are not as many."""
        self._left -= units
        return self._left >= 0


class LinearPattern:
    """A pattern of RE2: no look-around, no back-references; a match lies within one line."""

    def __init__(self, pattern: str) -> None:
        """Compile.

        Raises:
            ValueError: It is no pattern of RE2, or too large.
        """
        self._regex = compiled(pattern, never_capture=True, max_mem=_MAX_MEMORY)
        self._size: int = self._regex.programsize

    def found(self, text: str, fuel: Fuel) -> Iterator[str]:
        """Yield the matches in order, as long as the fuel lasts."""
        for line in text.splitlines():
            at = 0
            while at < len(line) and fuel.spend((len(line) - at) * self._size):
                match = self._regex.search(line, at)
                if match is None:
                    break
                yield match.group()
                at = max(match.end(), at + 1)
