"""A webhook receiver in this process: it keeps its requests and answers as a test defines."""

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.hold import PATIENCE_S, wait_until
from tests.support.web.serving import serving

SECRET = "planted-notify-secret-of-32-chars"


@dataclass(frozen=True)
class Says:
    """One answer. A hanging one comes when the test ends."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    words: str = "ok"
    hangs: bool = False


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON of the body."""
        return json.loads(self.body)

    @property
    def message_id(self) -> str:
        """The id that all attempts at the same message share."""
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """Answers in order, and repeats the last answer."""

    answers: Sequence[Says]
    url: str = ""
    received: list[Received] = field(default_factory=list[Received])
    release: threading.Event = field(default_factory=threading.Event)
    came: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int) -> None:
        """Wait, without an event loop, until it has got this many requests."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.received) >= count, PATIENCE_S)

    async def has(self, count: int) -> None:
        """Wait until it has got this many requests."""

        async def there() -> bool:
            return len(self.received) >= count

        await wait_until(there)


@contextmanager
def webhook_receiver(*answers: Says) -> Generator[Receiver]:
    """Serve on a free port of the loopback."""
    receiver = Receiver(answers or (Says(),))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with receiver.came:
                receiver.received.append(Received(self.path, headers, body))
                receiver.came.notify_all()
            says = receiver.answers[min(len(receiver.received), len(receiver.answers)) - 1]
            if says.hangs:
                receiver.release.wait(60)
            with suppress(OSError):  # the sender has disconnected
                self._say(says)

        def _say(self, says: Says) -> None:
            words = says.words.encode()
            self.send_response(says.status)
            for name, value in (says.headers | {"content-length": str(len(words))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(words)

    with serving(Handler) as port:
        receiver.url = f"http://127.0.0.1:{port}/hook/t0ken-in-the-address"
        try:
            yield receiver
        finally:
            receiver.release.set()
