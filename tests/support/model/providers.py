"""Model providers whose network is a function, and responses for it to return."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from orga.activities.adapters import http
from orga.activities.adapters.models.anthropic.messages_api import AnthropicMessages
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.activities.adapters.models.openai.chat_completions import OpenAIChat
from orga.activities.adapters.models.openai.responses_api import OpenAIResponses
from orga.activities.adapters.models.streaming import StreamingProvider
from orga.activities.adapters.models.wire import Wire
from orga.activities.ports import BlobStore, ModelRequest
from orga.workflows.types.messages import Message, Reply

KEY = "sk-test-0123456789abcdef"

Answer = http.Response | Exception


def a_request(**fields: Any) -> ModelRequest:
    """Return a request that says hello, changed by `fields`."""
    hello: dict[str, Any] = {"model": "some-model", "messages": (Message.of("user", "hello"),)}
    return ModelRequest(**(hello | fields))


@dataclass
class Network:
    """Answers requests in order, repeats the last answer, and keeps the requests."""

    answers: list[Answer]
    requests: list[http.Request] = field(default_factory=list[http.Request])

    def __call__(self, request: http.Request) -> http.Response:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def body(self, index: int = -1) -> dict[str, Any]:
        """Return the JSON of one request."""
        return json.loads(self.requests[index].content)


def provider(
    kind: str, network: Callable[[http.Request], http.Response], blobs: BlobStore | None = None
) -> StreamingProvider:
    """Return a provider of protocol `anthropic`, `responses`, or of chat completions under any other name."""
    named: dict[str, Wire] = {"anthropic": AnthropicMessages(), "responses": OpenAIResponses("openai")}
    wire = named.get(kind) or OpenAIChat(kind)
    headers = {"x-api-key": KEY} if kind == "anthropic" else {"authorization": f"Bearer {KEY}"}
    place = ProviderEndpoint(kind, "https://models.test/v1", headers=headers, secret=KEY)
    return StreamingProvider(place, wire, http.MockTransport(network), blobs=blobs)


async def complete_request(
    kind: str, *answers: Answer, request: ModelRequest | None = None, blobs: BlobStore | None = None
) -> tuple[Reply, str, Network]:
    """Return the reply, the text that was streamed, and the network that saw the requests."""
    network = Network(list(answers))
    pieces: list[str] = []
    model = provider(kind, network, blobs)
    try:
        reply = await model.complete(request or a_request(), pieces.append)
    finally:
        await model.close()
    return reply, "".join(pieces), network


def stream_response(*frames: dict[str, Any] | str, size: int = 7) -> http.Response:
    """Return an event stream, cut into chunks of `size` bytes. A string is sent unchanged."""
    texts = (frame if isinstance(frame, str) else json.dumps(frame) for frame in frames)
    data = "".join(f"data: {text}\n\n" for text in texts).encode()
    return http.Response(200, headers={"content-type": "text/event-stream"}, content=_cut(data, size))


async def _cut(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


KEEP_ALIVES = ("", " ", "{}", "null", "[]", '"ping"', "0")
"""Data of events that servers send to keep a connection open."""


def with_keep_alives(frames: Iterable[dict[str, Any] | str]) -> Iterator[dict[str, Any] | str]:
    """Yield the frames of a stream with keep-alives before each."""
    for frame in frames:
        yield from KEEP_ALIVES
        yield frame


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return a chat-completion chunk."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def response_events(
    *items: dict[str, Any], status: str = "completed", size: int = 4, **response: Any
) -> Iterator[dict[str, Any]]:
    """Yield the events of a response with these output items, whose texts are cut into pieces of `size` characters."""
    begun: dict[str, Any] = {"object": "response", "model": "some-model", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        if item["type"] == "reasoning":  # the object may be incomplete at the start
            empty = {"encrypted_content": item.get("encrypted_content", "")[:3], "summary": []}
        yield {"type": "response.output_item.added", "output_index": index, "item": item | empty}
        if item["type"] == "function_call":
            for piece in _pieces(item["arguments"], size):
                yield {"type": "response.function_call_arguments.delta", "delta": piece} | at
            yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]} | at
        for part in item.get("content", ()) if item["type"] == "message" else ():
            kind = "refusal" if part["type"] == "refusal" else "text"
            event = "response.refusal.delta" if kind == "refusal" else "response.output_text.delta"
            for piece in _pieces(part[kind], size):
                yield {"type": event, "content_index": 0, "delta": piece} | at
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25, "input_tokens_details": {"cached_tokens": 8}}
    whole = begun | {"status": status, "output": list(items), "usage": usage} | response
    yield {"type": f"response.{status}", "response": whole}


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def message_item(text: str, **fields: Any) -> dict[str, Any]:
    """Return an output item of a response: a message."""
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content} | fields


def call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return an output item of a response: a call."""
    fields = {"call_id": call_id, "name": name, "arguments": arguments, "status": "completed"}
    return {"type": "function_call", "id": f"fc_{call_id}"} | fields


def message_events(*blocks: list[dict[str, Any]], stop: str = "end_turn", **usage: int) -> Iterator[dict[str, Any]]:
    """Yield Anthropic's events for content blocks, each given as its start and its deltas."""
    yield {"type": "message_start", "message": {"model": "some-model", "usage": {"input_tokens": 1} | usage}}
    for index, (start, *deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def text_block(*pieces: str) -> list[dict[str, Any]]:
    """Return a streamed text block."""
    return [{"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces)]


def text_response(kind: str, text: str = "hi") -> http.Response:
    """Return a reply in protocol `anthropic` or `messages`, `responses`, or chat completions under any other name."""
    if kind in {"anthropic", "messages"}:
        return stream_response(*message_events(text_block(text)))
    if kind == "responses":
        return stream_response(*response_events(message_item(text)))
    return stream_response(chunk("stop", content=text), "[DONE]")


def call_block(call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    """Return a streamed tool call."""
    start: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return [start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces)]
