"""Where a JSON object that streams in ends: each character is looked at once."""

from collections.abc import Iterable


class ObjectText:
    """The text of an object so far. Whether it is valid JSON is not asked."""

    def __init__(self) -> None:
        self._depth = 0
        self._began = False
        self._in_string = False
        self._is_escaped = False

    @property
    def is_whole(self) -> bool:
        """Whether the object has begun and is closed."""
        return self._began and not self._depth

    def add(self, pieces: Iterable[str]) -> None:
        """Read on."""
        for piece in pieces:
            for char in piece:
                if self._in_string:
                    self._within_string(char)
                elif char == '"':
                    self._in_string = True
                elif char in "{}":
                    self._began = True
                    self._depth += 1 if char == "{" else -1

    def _within_string(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        else:
            self._is_escaped = char == "\\"
            self._in_string = char != '"'
