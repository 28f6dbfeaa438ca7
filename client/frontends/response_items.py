"""The steps of a turn as items of an OpenAI response, and as events of its stream."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from orga.client.frontends.turns import CallEnded, CallMade, Over, Step, Text, TurnFold, Waiting
from orga.workflows.types.json_text import as_object

_STATUS_BY_REASON = {
    "completed": "completed",
    **dict.fromkeys(("interrupted", "aborted"), "cancelled"),
    **dict.fromkeys(("error", "failed", "terminated"), "failed"),
}
"""The status of a turn that has ended. Other reasons are limits: the response is incomplete."""


@dataclass
class ResponseFold:
    """One response. The number of an event is its place in the stream, in which each character of a text counts."""

    id: str
    model: str
    created: int
    previous: str | None
    inbox: str
    after: int
    """Events up to this number are left out."""
    body: dict[str, Any]
    """The request, as far as it is known."""
    _number: int = -1
    _items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """All items of the stream, in the order of their `output_index`."""
    _left_out: set[int] = field(default_factory=set[int])
    """Indexes of items that are not part of the response once it is over: rejected answers, remarks before calls, and
    what has waited.
    """
    _open: int | None = None
    """The index of the message whose text streams."""
    _answer: int | None = None
    """The index of the last message."""
    _over: Over | None = None

    @property
    def number(self) -> dict[str, int]:
        return {"sequence_number": max(self._number, self.after)}

    def begin(self) -> Iterator[dict[str, Any]]:
        yield from self._event("response.created", response=self.response())
        yield from self._event("response.in_progress", response=self.response())

    def take(self, step: Step, fold: TurnFold) -> Iterator[dict[str, Any]]:
        match step:
            case Text(run="", is_thinking=False):
                yield from self._text(step)
            case CallMade(run=""):
                call = {"type": "mcp_call", "id": f"mcp_{step.place}", "server_label": "orga", "status": "in_progress"}
                yield from self._add(
                    call | {"name": step.tool, "arguments": step.arguments, "output": None, "error": None}
                )
            case CallEnded(run=""):
                index = next(at for at, item in enumerate(self._items) if item["id"] == f"mcp_{step.place}")
                is_good = step.outcome == "ok"
                ended = (
                    {"status": "completed", "output": step.text}
                    if is_good
                    else {"status": "failed", "error": step.text}
                )
                yield from self._done(index, **ended)
            case Waiting():
                yield from self._waiting(step)
            case Over():
                yield from self._end(step, fold)
            case _:
                pass

    def response(self) -> dict[str, Any]:
        """Return the response as it is now."""
        over = self._over
        status = "in_progress" if over is None else _STATUS_BY_REASON.get(over.reason, "incomplete")
        usage, why = (over.usage, over.detail or over.reason) if over else (None, "")
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": bool(self.body.get("background")),
            "error": {"code": "server_error", "message": why} if status == "failed" else None,
            "incomplete_details": {"reason": over.reason} if over and status == "incomplete" else None,
            "instructions": None,
            "metadata": as_object(self.body.get("metadata")),
            "model": self.model,
            "output": [item for at, item in enumerate(self._items) if at not in self._left_out or over is None],
            "parallel_tool_calls": True,
            "previous_response_id": self.previous,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage
            and {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_input_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
                "total_tokens": usage.total_tokens,
            },
        }

    def _event(self, kind: str, **data: Any) -> Iterator[dict[str, Any]]:
        self._number += 1
        if self._number > self.after:
            yield {"type": kind, "sequence_number": self._number, **data}

    def _add(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._items.append(item)
        yield from self._event("response.output_item.added", output_index=len(self._items) - 1, item=dict(item))

    def _done(self, index: int, **changes: Any) -> Iterator[dict[str, Any]]:
        self._items[index] |= changes
        yield from self._event("response.output_item.done", output_index=index, item=dict(self._items[index]))

    def _text(self, step: Text) -> Iterator[dict[str, Any]]:
        """Send what is new of a text. After a failed attempt, one that does not continue is repeated as a whole."""
        if self._open is None and step.text:
            yield from self._begin_message(f"msg_{step.iteration}")
        if self._open is None:
            return
        index, part = self._open, self._items[self._open]["content"][0]
        had = part["text"]
        if step.text.startswith(had):
            yield from self._delta(index, step.text[len(had) :])
        elif step.is_whole:
            self._number += len(step.text) - len(had)
            yield self._delta_event(index, "\n\n" + step.text, self._number)
        if step.text.startswith(had) or step.is_whole:
            part["text"] = step.text
        if step.is_whole:
            yield from self._end_message()
            self._left_out |= {self._answer} if self._answer is not None else set()
            self._answer = index

    def _delta(self, index: int, delta: str) -> Iterator[dict[str, Any]]:
        missing = min(self._number + len(delta) - self.after, len(delta))
        self._number += len(delta)
        if missing > 0:
            yield self._delta_event(index, delta[len(delta) - missing :], self._number)

    def _delta_event(self, index: int, delta: str, number: int) -> dict[str, Any]:
        at = {"item_id": self._items[index]["id"], "output_index": index, "content_index": 0}
        return {"type": "response.output_text.delta", "sequence_number": number, **at, "delta": delta, "logprobs": []}

    def _begin_message(self, item_id: str) -> Iterator[dict[str, Any]]:
        item: dict[str, Any] = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress"}
        item["content"] = []
        yield from self._add(item)
        self._open = len(self._items) - 1
        part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        at = {"item_id": item_id, "output_index": self._open, "content_index": 0}
        yield from self._event("response.content_part.added", **at, part=dict(part))
        item["content"] = [part]

    def _end_message(self, status: str = "completed") -> Iterator[dict[str, Any]]:
        index, self._open = self._open or 0, None
        item = self._items[index]
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        part = item["content"][0]
        yield from self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
        yield from self._event("response.content_part.done", **at, part=dict(part))
        yield from self._done(index, status=status)

    def _waiting(self, step: Waiting) -> Iterator[dict[str, Any]]:
        """Say what waits for a person. The journal does not repeat it, so these events do not count."""
        number, after, self.after = self._number, self.after, -1
        lines = [f"- {asked.wait.question}" for asked in step.waits]
        text = "\n".join(["This waits for a person:", *lines, f"Decide it in the inbox: {self.inbox}"])
        self._left_out.add(len(self._items))
        events = [*self._begin_message(f"msg_wait_{step.waits[0].wait.wait_id}")]
        events += [*self._delta(len(self._items) - 1, text)]
        self._items[-1]["content"][0]["text"] = text
        events += [*self._end_message("in_progress")]
        self._number, self.after = number, after
        yield from (event | self.number for event in events)

    def _end(self, over: Over, fold: TurnFold) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            yield from self._end_message("incomplete")
        answer = "" if self._answer is None else self._items[self._answer]["content"][0]["text"]
        if over.output != answer or fold.view.calls:
            self._left_out |= {self._answer} if self._answer is not None else set()
            if over.output:
                yield from self._text(Text("", fold.view.iteration, over.output, is_whole=True))
        self._over, self.after = over, -1
        response = self.response()
        kind = response["status"] if response["status"] in {"completed", "failed"} else "incomplete"
        yield from self._event(f"response.{kind}", response=response)
