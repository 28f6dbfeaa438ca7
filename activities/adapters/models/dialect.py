"""What one model accepts of a request, learned from its refusals."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from pydantic_core import to_json

from orga.activities.adapters.models.errors import Refusal
from orga.activities.adapters.models.kept_fields import EXTRA_FIELD, REASONING_FIELD
from orga.activities.adapters.models.overflow import stated_tokens
from orga.activities.ports import ModelRequest, ToolChoice
from orga.workflows.types.json_text import FINAL_ANSWER

MAX_LESSONS = 5
"""Refusals that one call may learn from before it fails, those of single tools apart."""

BYTES_PER_TOKEN = 3.3
"""As the loop estimates, where a provider counts nothing."""

MIN_OUTPUT_TOKENS = 512
"""Tokens of an output limit below which a reply is of no use: the conversation has to give way instead."""

_WINDOW_MARGIN = 1.05
"""Later messages may hold more tokens in a byte than those that were counted."""

_REFUSED = re.compile(
    r"unsupported|n[o']t support|deprecated|only the default|may only be set|permitted|unrecogni[sz]ed|unknown"
    r"|unexpected|extra|use '?max_|may not be enabled",
    re.IGNORECASE,
)
_STALE_THINKING = re.compile(
    r"bound to a different|`?signature`? in `?thinking|thinking`? blocks .*cannot be modified"
    r"|encrypted.content .*(?:could not|cannot|can't|invalid)|invalid_encrypted_content|item with id 'rs_"
    r"|type 'reasoning'",
    re.IGNORECASE,
)
_SCHEMA = re.compile(
    r"response_format|text\.format|output_config|output.format|json_schema|structured.output|schema is too complex"
    r"|guided|grammar",
    re.IGNORECASE,
)
"""However it is put: what is wrong may be the field, its type, or a keyword of this schema."""
_CEILING = re.compile(
    r"(?:> ?|<= ?|at most |up to |not exceed |lower than |less than or equal to |\[\d+, ?|limit of |\(inclusive\) to )"
    r"[`'\"]?(\d+)( \(exclusive)?",
    re.IGNORECASE,
)
_OUTPUT_LIMIT = re.compile(r"max_?(?:completion|output|new)?_?tokens|output tokens|maximum tokens", re.IGNORECASE)

_NO_SYSTEM_ROLE = re.compile(
    r"system (?:role|message|prompt|instruction)s? (?:is |are )?(?:not|n't|un)\s?(?:supported|allowed|enabled)"
    r"|developer instruction is not enabled"  # Gemma, by Gemini's API
    r"|does(?:n't| not) support (?:a |the )?['\"]?(?:system|developer)\b"
    r"|(?:invalid|unsupported|unknown|unexpected) (?:message )?role:? ['\"]?(?:system|developer)",
    re.IGNORECASE,
)
_ALTERNATION = re.compile(
    r"\broles?\b.{0,80}alternat|alternat\w+.{0,60}(?:user|assistant|role)"  # templates of Gemma and Mistral, Perplexity
    r"|interleave|successive (?:user|assistant)"  # DeepSeek
    r"|(?:multiple|consecutive) .{0,20}(?:roles?|messages|turns)"
    r"|unexpected role .{0,20} after role"  # Mistral
    r"|turn comes immediately after",  # Gemini
    re.IGNORECASE,
)
"""How chat templates and servers refuse two messages of one side in a row."""


@dataclass(frozen=True)
class Dialect:
    """The parts of a request in which models of one protocol differ."""

    tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: bool = True
    stream_options: bool = True
    tool_choice_field: bool = True
    """Whether `tool_choice` is sent where the model may choose; some servers refuse it even then."""
    forced_tools: bool = True
    """Whether a call can be demanded; where it can't, `any` is sent as `auto`, and the loop sees who didn't call."""
    thinking: bool = True
    """Whether earlier thinking goes back. Claude refuses it when anything before it has changed, as compaction does."""
    encrypted_reasoning: bool = True
    """Whether the model can be asked to hand over its reasoning for the next request."""
    response_format: bool = True
    """Whether a schema for the whole reply is taken; where not, the answer is a forced tool call."""
    sure_schema: bool = False
    """Whether that schema is enforced on answers alone: other servers ignore it, or hold tool calls to it as well."""
    strict_schema: bool = False
    """Whether no other schema is taken there than one of closed objects and few keywords."""
    answer_tool: bool = True
    """Whether that tool is taken where no other is offered; where not, the schema is told in words."""
    plain_tools: frozenset[str] = frozenset()
    """Digests of tools that are sent with a plain schema, since the model refused them otherwise."""
    left_out: frozenset[str] = frozenset()
    """Digests of tools that the model takes in no shape."""
    max_tools: int | None = None
    system_role: bool = True
    """Whether a system message is taken; if not, the instructions begin the first message of the user."""
    alternating: bool = False
    """Whether messages of user and assistant have to alternate."""
    max_output_tokens: int | None = None
    """The model's own ceiling, where it is below what is asked for."""
    window: int | None = None
    """Tokens for input and output together, where a refusal stated them."""
    tokens_per_byte: float = 1 / BYTES_PER_TOKEN
    """Of what is sent, as the model counted it when it stated its window."""

    def tool_choice(self, request: ModelRequest) -> ToolChoice:
        """Return the tool choice to send."""
        return request.tool_choice if self.forced_tools or request.tool_choice != "any" else "auto"

    def output_tokens(self, request: ModelRequest) -> int:
        """Return the output limit to send: within the model's ceiling and what the input leaves of its window."""
        limit = request.max_output_tokens
        if self.max_output_tokens is not None:
            limit = min(limit, self.max_output_tokens)
        if self.window is not None:
            limit = min(limit, max(self.window - self.input_tokens(request), MIN_OUTPUT_TOKENS))
        return limit

    def input_tokens(self, request: ModelRequest) -> int:
        """Return the tokens that the model may count in what is sent."""
        return ceil(request_bytes(request) * self.tokens_per_byte)


def request_bytes(request: ModelRequest) -> int:
    """Return the size of what a model is sent: instructions, messages, tools."""
    tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
    messages = [message.parts for message in request.messages]
    return len(to_json((request.system, messages, tools, request.output_schema)))


def learned_dialect(dialect: Dialect, request: ModelRequest, refusal: Refusal) -> Dialect | None:
    """Return what to try instead, or None when the refusal names nothing that can be left out or lowered.

    A value out of range is not left out: the run asked for it and should hear of it. The output limit alone is
    lowered, to what the model has room for.
    """
    text = f"{refusal.error.code} {refusal.error.message}"
    if refusal.kind == "ContextOverflow":
        return _window_lesson(dialect, request, refusal)
    if refusal.kind == "InvalidRequest":
        found = (lesson(dialect, request, text) for lesson in _LESSONS)
        return next((lesson for lesson in found if lesson is not None), None)
    # a chat template that fails is a server error to some servers
    return _roles_lesson(dialect, request, text) if refusal.status >= 500 else None


def _window_lesson(dialect: Dialect, request: ModelRequest, refusal: Refusal) -> Dialect | None:
    """Lower the output limit to what the input leaves; None where it leaves too little, or was all that counted."""
    asked, size = dialect.output_tokens(request), request_bytes(request)
    found = stated_tokens(refusal.error.message, asked)
    if found.window is None:  # which of both was too much is not stated
        lower = asked // 4
        may_help = lower >= MIN_OUTPUT_TOKENS and not refusal.in_stream
        return replace(dialect, max_output_tokens=lower) if may_help else None
    used = found.used
    if used is None or not found.is_exact:
        # a second refusal shows that the first estimate was too low
        estimate = ceil(dialect.input_tokens(request) * (1.25 if dialect.window is not None else 1))
        used = max(estimate, used or 0)
    if found.window - used < min(asked, MIN_OUTPUT_TOKENS):
        return None
    lesson = replace(dialect, window=found.window, tokens_per_byte=used * _WINDOW_MARGIN / max(size, 1))
    return lesson if lesson.output_tokens(request) < asked else None


def _schema_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    is_asked = request.output_schema is not None and dialect.response_format
    return replace(dialect, response_format=False) if is_asked and _SCHEMA.search(refusal) else None


def _field_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if not _REFUSED.search(refusal):
        return None
    found = (field for field in _REFUSABLE_FIELDS if field.is_sent(dialect, request))
    return next((replace(dialect, **field.instead) for field in found if re.search(field.pattern, refusal)), None)


@dataclass(frozen=True)
class _RefusableField:
    """A field of a request that some models refuse."""

    is_sent: Callable[[Dialect, ModelRequest], bool]
    pattern: str
    """A refusal of it matches this regular expression."""
    instead: dict[str, Any]


_REFUSABLE_FIELDS = (
    _RefusableField(
        lambda d, r: d.tokens_field == "max_tokens", "max_completion_tokens", {"tokens_field": "max_completion_tokens"}
    ),
    _RefusableField(
        lambda d, r: d.tokens_field != "max_tokens", "max_completion_tokens", {"tokens_field": "max_tokens"}
    ),
    _RefusableField(lambda d, r: d.temperature and r.temperature is not None, "temperature", {"temperature": False}),
    _RefusableField(lambda d, r: d.stream_options, "stream_options", {"stream_options": False}),
    _RefusableField(
        lambda d, r: d.encrypted_reasoning, r"[Ee]ncrypted.content|\binclude\b", {"encrypted_reasoning": False}
    ),
    _RefusableField(lambda d, r: d.thinking, f"{REASONING_FIELD}|{EXTRA_FIELD}", {"thinking": False}),
    _RefusableField(lambda d, r: d.forced_tools and r.tool_choice == "any", "tool_choice", {"forced_tools": False}),
    _RefusableField(lambda d, r: d.tool_choice_field and bool(r.tools), "tool_choice", {"tool_choice_field": False}),
    _RefusableField(
        lambda d, r: d.answer_tool and [t.name for t in r.tools] == [FINAL_ANSWER], "tool", {"answer_tool": False}
    ),
)


def _roles_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if dialect.system_role and _NO_SYSTEM_ROLE.search(refusal):
        return replace(dialect, system_role=False)
    if not dialect.alternating and _ALTERNATION.search(refusal):
        return replace(dialect, alternating=True)
    return None


def _thinking_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    return replace(dialect, thinking=False) if dialect.thinking and _STALE_THINKING.search(refusal) else None


def _ceiling_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if not _OUTPUT_LIMIT.search(refusal):
        return None
    numbers = [int(found[1]) - bool(found[2]) for found in _CEILING.finditer(refusal)]
    below = [number for number in numbers if 0 < number < dialect.output_tokens(request)]
    return replace(dialect, max_output_tokens=min(below)) if below else None


_LESSONS: tuple[Callable[[Dialect, ModelRequest, str], Dialect | None], ...] = (
    *(_schema_lesson, _thinking_lesson, _field_lesson, _roles_lesson, _ceiling_lesson),
)
