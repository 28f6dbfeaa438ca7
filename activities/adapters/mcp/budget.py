"""Limits what a server may send: an answer to each request, and a little more. A server that exceeds it is left."""

import time

ANSWER_BYTES = 17_000_000
"""Bytes for a request of ours: the largest message, and progress notes before it."""

UNSOLICITED_BYTES = 2_000_000
"""Bytes of a server's notifications and requests, also within its answers."""

UNSOLICITED_OVERHEAD_BYTES = 1_000
"""The least bytes that one of them counts, because each takes a fraction of a millisecond."""

UNSOLICITED_BYTES_PER_S = 50_000

MAX_BYTES = 2 * ANSWER_BYTES
"""The most bytes that many small answers can save up."""

SMALL_MESSAGE_BYTES = 100_000
"""Bytes. A larger message is parsed in a thread."""

MAX_PARTS = 100_000
"""Lists, objects and commas of a message. More would block the whole worker while they are parsed."""


class ByteBudgetExceeded(Exception):
    """A server sent more than we asked for."""


class ByteBudget:
    """The bytes that a server may still send."""

    def __init__(self) -> None:
        self._left = float(UNSOLICITED_BYTES)
        self._at = time.monotonic()

    def grant(self) -> None:
        """Add the bytes for an answer."""
        self._left = min(self._left + ANSWER_BYTES, MAX_BYTES)

    def spend(self, size: int) -> None:
        """Subtract received bytes.

        Raises:
            ByteBudgetExceeded: The server sent too much.
        """
        now = time.monotonic()
        if self._left < UNSOLICITED_BYTES:
            self._left = min(self._left + (now - self._at) * UNSOLICITED_BYTES_PER_S, UNSOLICITED_BYTES)
        self._at = now
        self._left -= size
        if self._left < 0:
            raise ByteBudgetExceeded("it sends far more than it is asked for")

    def spend_unsolicited(self, size: int) -> None:
        """Subtract a message that answers nothing from the separate budget for these.

        Raises:
            ByteBudgetExceeded: The server sent too much.
        """
        self.spend(max(size, UNSOLICITED_OVERHEAD_BYTES))
