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

    @property
    def is_cut(self) -> bool:
        """Whether bytes are missing."""
        return self._left_out > 0

    def data(self) -> bytes:
        """Return what was kept, with a mark where bytes are missing in between."""
        mark = b"\n[... %s bytes left out ...]\n" % f"{self._left_out:,}".encode()
        return bytes(self._head + (mark if self.is_cut and self._max_tail else b"") + self._tail)

    def text(self) -> str:
        """Return it as text."""
        return self.data().decode(errors="replace")
