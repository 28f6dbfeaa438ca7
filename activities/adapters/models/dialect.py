"""What one model accepts of a request, learned from its refusals."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from orga.activities.adapters.models.kept_fields import EXTRA, THOUGHT
from orga.activities.ports import ModelRequest, ToolChoice
from orga.workflows.types.json_text import FINAL_ANSWER

MAX_LESSONS = 5
"""Refusals that one call may learn from before it fails."""

_REFUSED = re.compile(
    r"unsupported|n[o']t support|deprecated|only the default|may only be set|permitted|unrecogni[sz]ed|unknown"
    r"|unexpected|extra|use '?max_|may not be enabled",
    re.IGNORECASE,
)
_STALE_THINKING = re.compile(r"bound to a different|`?signature`? in `?thinking|thinking`? blocks .*cannot be modified")
_SCHEMA = re.compile(
    r"response_format|output_config|output.format|json_schema|structured.output|schema is too complex|guided|grammar",
    re.IGNORECASE,
)
"""However it is put: what is wrong may be the field, its type, or a keyword of this schema."""
_KEPT = re.compile(rf"{THOUGHT}|{EXTRA}")
_CEILING = re.compile(r"(?:> |at most |less than or equal to |\[\d+, ?)[`'\"]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """The parts of a request in which models of one protocol differ."""

    tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: bool = True
    stream_options: bool = True
    forced_tools: bool = True
    """Whether a call can be demanded; where it can't, `any` is sent as `auto`, and the loop sees who didn't call."""
    thinking: bool = True
    """Whether earlier thinking goes back. Claude refuses it when anything before it has changed, as compaction does."""
    response_format: bool = True
    """Whether a schema for the whole reply is taken; where not, the answer is a forced tool call."""
    sure_schema: bool = False
    """Whether that schema is enforced on answers alone: other servers ignore it, or hold tool calls to it as well."""
    strict_schema: bool = False
    """Whether no other schema is taken there than one of closed objects and few keywords."""
    answer_tool: bool = True
    """Whether that tool is taken where no other is offered; where not, the schema is told in words."""
    max_output_tokens: int | None = None
    """The model's own ceiling, where it is below what is asked for."""

    def tool_choice(self, request: ModelRequest) -> ToolChoice:
        """Return the tool choice to send."""
        return request.tool_choice if self.forced_tools or request.tool_choice != "any" else "auto"

    def output_tokens(self, request: ModelRequest) -> int:
        """Return the output limit to send."""
        ceiling = self.max_output_tokens
        return request.max_output_tokens if ceiling is None else min(ceiling, request.max_output_tokens)


def learned(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    """Return what to try instead after a 400, or None when its text names nothing that can be left out.

    A value out of range is not left out: the run asked for it and should hear of it. The output limit alone is
    lowered, to the ceiling that the refusal states.
    """
    lesson = _schema_lesson(dialect, request, refusal)
    if lesson is None and _REFUSED.search(refusal):
        lesson = _field_lesson(dialect, request, refusal) or _tool_lesson(dialect, request, refusal)
    if lesson is None and dialect.thinking and _STALE_THINKING.search(refusal):
        lesson = replace(dialect, thinking=False)
    if lesson is None and re.search(r"max_(completion_)?tokens|output tokens", refusal):
        lesson = _ceiling_lesson(dialect, request, refusal)
    return lesson


def _schema_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    is_asked = request.output_schema is not None and dialect.response_format
    return replace(dialect, response_format=False) if is_asked and _SCHEMA.search(refusal) else None


def _field_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if dialect.tokens_field == "max_tokens" and "max_completion_tokens" in refusal:
        return replace(dialect, tokens_field="max_completion_tokens")
    if dialect.tokens_field == "max_completion_tokens" and "max_completion_tokens" in refusal:
        return replace(dialect, tokens_field="max_tokens")
    if dialect.temperature and request.temperature is not None and "temperature" in refusal:
        return replace(dialect, temperature=False)
    if dialect.stream_options and "stream_options" in refusal:
        return replace(dialect, stream_options=False)
    if dialect.thinking and _KEPT.search(refusal):
        return replace(dialect, thinking=False)
    return None


def _tool_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if dialect.forced_tools and request.tool_choice == "any" and "tool_choice" in refusal:
        return replace(dialect, forced_tools=False)
    is_alone = [tool.name for tool in request.tools] == [FINAL_ANSWER]
    return replace(dialect, answer_tool=False) if dialect.answer_tool and is_alone and "tool" in refusal else None


def _ceiling_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    stated = [int(number) for number in _CEILING.findall(refusal)]
    below = [number for number in stated if 0 < number < dialect.output_tokens(request)]
    return replace(dialect, max_output_tokens=min(below)) if below else None
