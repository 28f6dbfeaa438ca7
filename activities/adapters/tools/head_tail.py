"""Output of any length in bounded memory: its head and its tail."""


class HeadTail:
    """Takes pieces; keeps the first and the last bytes and counts what falls between."""

    def __init__(self, head: int, tail: int) -> None:
        self._room = head
        self._max_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        fits = self._room - len(self._head)
        self._head += piece[:fits]
        self._tail += piece[fits:]
        if len(self._tail) > self._max_tail:
            over = len(self._tail) - self._max_tail
            self._left_out += over
            del self._tail[:over]

    def text(self) -> str:
        """Return what was kept, with a mark where bytes are missing."""
        if not self._left_out:
            return (self._head + self._tail).decode(errors="replace")
        mark = f"\n[... {self._left_out:,} bytes left out ...]\n"
        return self._head.decode(errors="replace") + mark + self._tail.decode(errors="replace")
