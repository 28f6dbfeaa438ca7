"""What a server may send: an answer to each request, and a little that nobody asked for. Who sends more is left."""

import time

ANSWER_BYTES = 17_000_000
"""For a request of ours: the largest message, and progress notes before it."""

UNSOLICITED_BYTES = 2_000_000
"""Notifications and requests of a server at once, within its answers, too."""

UNSOLICITED_OVERHEAD_BYTES = 1_000
"""What the smallest of them counts: each takes a fraction of a millisecond."""

UNSOLICITED_BYTES_PER_S = 50_000

MAX_BYTES = 2 * ANSWER_BYTES
"""Unused room of many small answers is not kept."""

SMALL_MESSAGE_BYTES = 100_000
"""A larger message is read in a thread."""

MAX_PARTS = 100_000
"""Of a message: lists, objects and commas. More of them hold up all that the worker does while they are read."""


class ByteBudgetExceeded(Exception):
    """A server sent more than was asked for."""


class ByteBudget:
    """Bytes that may still come."""

    def __init__(self) -> None:
        self._left = float(UNSOLICITED_BYTES)
        self._at = time.monotonic()

    def grant(self) -> None:
        """Make room for an answer."""
        self._left = min(self._left + ANSWER_BYTES, MAX_BYTES)

    def spend(self, size: int) -> None:
        """Take what came.

        Raises:
            SentTooMuch: There is no room for it.
        """
        now = time.monotonic()
        if self._left < UNSOLICITED_BYTES:
            self._left = min(self._left + (now - self._at) * UNSOLICITED_BYTES_PER_S, UNSOLICITED_BYTES)
        self._at = now
        self._left -= size
        if self._left < 0:
            raise ByteBudgetExceeded("it sends far more than it is asked for")

    def spend_unasked(self, size: int) -> None:
        """Take a message that answers nothing, of a budget for these alone.

        Raises:
            SentTooMuch: There is no room for it.
        """
        self.spend(max(size, UNSOLICITED_OVERHEAD_BYTES))
