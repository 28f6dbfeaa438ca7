"""A model over HTTP that a test can hold: it streams chat completions, chosen by the length of the conversation."""

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.web.serving import serving


@dataclass(frozen=True)
class Says:
    """A streamed text. A held one stops before its last piece until `release` is set."""

    pieces: Sequence[str]
    hold: bool = False
    tokens: int = 0
    """Tokens that it reports as read, and as written."""


@dataclass(frozen=True)
class Calls:
    """One tool call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class CallsAtOnce:
    """Several tool calls in one reply."""

    calls: Sequence[Calls]


@dataclass(frozen=True)
class TellsHeaders:
    """A text that repeats the headers of the request."""


ScriptedReply = Says | Calls | CallsAtOnce | TellsHeaders


@dataclass
class ChatServer:
    """Replies by the number of assistant messages in the request, so that a repeated attempt gets the same reply."""

    replies: Sequence[ScriptedReply]
    release: threading.Event = field(default_factory=threading.Event)
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[str] = field(default_factory=list[str])
    """The headers of each request, as JSON."""
    port: int = 0
    ollama_context: int = 0
    """The context that Ollama's native API states. 0: the server is not Ollama. Otherwise each request gets the next
    reply, because the conversation may become shorter."""

    @property
    def url(self) -> str:
        """Base URL for the config."""
        return f"http://127.0.0.1:{self.port}/v1"

    def frames(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the chunks of the reply to a request."""
        self.requests.append(body)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        turn = len(self.requests) - 1 if self.ollama_context else turn
        reply = self.replies[min(turn, len(self.replies) - 1)]
        if isinstance(reply, TellsHeaders):
            reply = Says([self.headers[-1][:60], self.headers[-1][60:]])
        if not isinstance(reply, Says):
            made = (reply,) if isinstance(reply, Calls) else reply.calls
            yield _chunk(tool_calls=[_call(call, turn, index) for index, call in enumerate(made)])
            yield _chunk("tool_calls")
            return
        for piece in reply.pieces[:-1]:
            yield _chunk(content=piece)
        if reply.hold:
            self.release.wait(60)
        yield _chunk(content=reply.pieces[-1])
        yield _chunk("stop")
        if reply.tokens:
            usage = {"prompt_tokens": reply.tokens, "completion_tokens": reply.tokens}
            yield {"object": "chat.completion.chunk", "choices": [], "usage": usage}


@contextmanager
def chat_server(*replies: ScriptedReply) -> Generator[ChatServer]:
    """Serve on a free port."""
    chat = ChatServer(replies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            loaded = [{"name": "m:latest", "context_length": chat.ollama_context}]
            self.send_response(200 if chat.ollama_context else 501)
            self.end_headers()
            self.wfile.write(json.dumps({"models": loaded}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            if self.path == "/api/show":
                self.end_headers()
                self.wfile.write(json.dumps({"model_info": {"m.context_length": 131_072}}).encode())
                return
            chat.headers.append(json.dumps(dict(self.headers.items())))
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for frame in chat.frames(body):
                    self.wfile.write(f"data: {json.dumps(frame)}\n\n".encode())
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                pass  # the caller was killed or has disconnected

    with serving(Handler) as chat.port:
        try:
            yield chat
        finally:
            chat.release.set()


def _call(call: Calls, turn: int, index: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    call_id = f"call_{turn}_{index}" if index else f"call_{turn}"
    return {"index": index, "id": call_id, "type": "function", "function": function}


def _chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
