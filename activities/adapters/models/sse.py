"""Server-sent events from bytes: any chunking, any line ending, bounded."""

MAX_EVENT_BYTES = 8_000_000
MAX_STREAM_BYTES = 64_000_000
"""Framing costs some 200 bytes a token, so this is far above any reply that is kept."""

MAX_SILENT_LINES = 1_000_000
"""Lines without data, as blank ones and comments: nothing but those would keep a processor busy for a minute."""


class SseTooLarge(Exception):
    """A line, an event or the stream is larger than a model's reply can be."""


class SseDecoder:
    """Turns chunks of an event stream into the data of its events; `event`, `id` and comments are passed over.

    Lines are decoded whole, so a character that is split between chunks stays one character.
    """

    def __init__(
        self,
        *,
        max_event: int = MAX_EVENT_BYTES,
        max_stream: int = MAX_STREAM_BYTES,
        max_silent_lines: int = MAX_SILENT_LINES,
    ) -> None:
        self._max_event = max_event
        self._max_stream = max_stream
        self._max_silent_lines = max_silent_lines
        self._line = bytearray()
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._stream_bytes = 0
        self._silent_lines = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that `chunk` completes.

        Raises:
            SseTooLarge: When a bound is passed.
        """
        self._stream_bytes += len(chunk)
        if self._stream_bytes > self._max_stream:
            raise SseTooLarge(f"more than {self._max_stream} bytes")
        *ended, rest = self._lines(chunk)
        events: list[str] = []
        for line in ended:
            self._line += line
            events.extend(self._end_of_line())
        self._line += rest
        if self._silent_lines > self._max_silent_lines:
            raise SseTooLarge(f"more than {self._max_silent_lines} lines without data")
        if len(self._line) + self._event_bytes > self._max_event:
            raise SseTooLarge(f"an event of more than {self._max_event} bytes")
        return events

    def finish(self) -> list[str]:
        """Return the event that a server left without its closing blank line."""
        return [*self._end_of_line(), *self._dispatch()] if self._line else self._dispatch()

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def _end_of_line(self) -> list[str]:
        line = bytes(self._line).removeprefix(b"\xef\xbb\xbf")
        self._line.clear()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._event_bytes += len(value) + 1
            return []
        self._silent_lines += 1
        return [] if line else self._dispatch()

    def _dispatch(self) -> list[str]:
        data, self._data = self._data, []
        self._event_bytes = 0
        return [b"\n".join(data).decode(errors="replace")] if data else []
