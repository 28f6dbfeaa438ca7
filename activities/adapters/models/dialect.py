"""Learns from refusals which parts of a request a model accepts, and keeps that for all workers of a state folder."""

import json
import re
import time
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from orga.activities.adapters.models.errors import Refusal
from orga.activities.adapters.models.kept_fields import kept_names, latest_container
from orga.activities.adapters.models.overflow import stated_tokens
from orga.activities.adapters.models.thinking import (
    LEVELS,
    SentThinking,
    ThinkingForm,
    ThinkingSupport,
    sent_thinking,
    support_after_refusal,
)
from orga.activities.adapters.shared_files import OwnFile, write_atomically
from orga.activities.ports import ModelRequest, ToolChoice
from orga.workflows.types.json_text import FINAL_ANSWER, as_object
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.endpoints import EndpointSettings, Lack

MAX_LESSONS = 5
"""Lessons from the refusals of one call. Lessons about single tools do not count."""

BYTES_PER_TOKEN = 3.3
"""An estimate, used until a provider counts. The loop uses the same number."""

MIN_OUTPUT_TOKENS = 512
"""Tokens. A lower output limit is of no use, so the conversation has to become shorter instead."""

MARGIN = 1.05
"""Factor that raises the counted tokens per byte, because later messages may have more tokens per byte."""

_REFUSED = re.compile(
    r"unsupported|n[o']t support|deprecated|only the default|may only be set|permitted|unrecogni[sz]ed|unknown"
    r"|unexpected|extra|use '?max_|may not be enabled",
    re.IGNORECASE,
)
"""Words of a refusal that is about a field itself, not about its value."""

_STALE_THINKING = re.compile(
    r"bound to a different|`?signature`? in `?thinking|thinking`? blocks .*cannot be modified"
    r"|encrypted.content .*(?:could not|cannot|can't|invalid)|invalid_encrypted_content|item with id 'rs_"
    r"|type 'reasoning'",
    re.IGNORECASE,
)
"""Refusals of earlier thinking: something before it has changed, or another model or account wrote it."""

_SCHEMA = re.compile(
    r"response_format|text\.format|output_config|output.format|json_schema|structured.output|schema is too complex"
    r"|guided|grammar",
    re.IGNORECASE,
)
"""Refusals of a schema in any wording. The cause may be the field, its type, or a keyword of this schema."""

_CEILING = re.compile(
    r"(?:> ?|<= ?|at most |up to |not exceed |lower than |less than or equal to |\[\d+, ?|limit of |\(inclusive\) to )"
    r"[`'\"]?(\d+)( \(exclusive)?",
    re.IGNORECASE,
)
"""The first group is the highest allowed number. The second one is empty, unless that number itself is too high."""

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
"""Refusals of two consecutive messages of one role, by chat templates and servers."""

_NO_TOOLS = re.compile(
    r"(?:does|do)(?:n't| not) (?:\w+ )?support (?:the )?(?:parameters?:? *)?[\[{(]?[\"'`]?(?:tools?|functions?)\b"
    r"|support tool use|(?:tools?|functions?)[ _-]?(?:call(?:s|ing)?|use|choice)?\W{1,3}(?:is|are) (?:not|un)\s?"
    r"(?:supported|enabled|available)|enable-auto-tool-choice|tool-call-parser"
    r"|requires? --jinja|template (?:does not support|has no|not found for) tools?"
    r"|(?:unsupported|unrecogni[sz]ed|unknown|extra) (?:\w+ ){0,3}\W*tools\b",
    re.IGNORECASE,
)
"""Refusals of all tools, not of a single definition: by Ollama, LiteLLM, OpenRouter, Groq, vLLM, llama.cpp, TGI."""


@dataclass(frozen=True)
class Dialect:
    """The parts of a request in which models of one protocol differ."""

    tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    refused: frozenset[str] = frozenset()
    """Settings that the model does not accept, by their names in `ModelSettings`."""
    stream_options: bool = True
    native_tools: bool = True
    """True if calls are fields of the protocol. Otherwise they are written in text."""
    forced_tools: bool = True
    """True if a call can be forced. Otherwise `any` is sent as `auto`, and the loop notices a reply without a call."""
    thinking: bool = True
    """True if earlier thinking is sent back. Claude refuses it if a compaction has changed the messages before it."""
    kept_fields: bool = True
    """True if further fields and blocks of earlier replies are sent back as they came."""
    thinking_forms: tuple[ThinkingForm, ...] = ("effort",)
    """The ways to set how much the model thinks."""
    thinking_levels: tuple[str, ...] = LEVELS
    """The levels of effort that the model has."""
    images: bool = True
    """True if pictures are sent. Otherwise words replace them."""
    documents: bool = True
    """True if PDFs are sent. Otherwise words replace them."""
    encrypted_reasoning: bool = True
    """True if the model can return encrypted reasoning for the next request."""
    response_format: bool = True
    """True if a schema for the whole reply is accepted. Otherwise, see `answer_tool`."""
    sure_schema: bool = False
    """True if the server enforces that schema on answers only. Other servers ignore it, or enforce it on calls too."""
    strict_schema: bool = False
    """True if that schema must consist of closed objects and few keywords."""
    strict_tools: bool = False
    """True if `strict` is sent with each tool whose schema OpenAI's strict mode accepts unchanged."""
    answer_tool: bool = True
    """True if an answer with a schema may be a call of a tool. Otherwise the instructions contain the schema."""
    plain_tools: frozenset[str] = frozenset()
    """Digests of tools that are sent with a plain schema, because the model refused their own."""
    left_out: frozenset[str] = frozenset()
    """Digests of tools that the model refuses in every shape."""
    max_tools: int | None = None
    by_other: bool = False
    """True if the model is asked by the endpoint's other protocol, because a refusal has pointed to that one."""
    system_role: bool = True
    """True if a system message is accepted. Otherwise the instructions begin the user's first message."""
    alternating: bool = False
    """True if messages of user and assistant have to alternate."""
    max_output_tokens: int | None = None
    """The model's own limit, if it is below the requested one."""
    window: int | None = None
    """Tokens for input and output together, if the endpoint's settings or a refusal stated them."""
    tokens_per_byte: float = 1 / BYTES_PER_TOKEN
    """Tokens per sent byte, as the model counted them when it stated its window."""

    def settings(self, request: ModelRequest) -> ModelSettings:
        return request.settings.without(self.refused)

    def tool_choice(self, request: ModelRequest) -> ToolChoice:
        is_refused = request.tool_choice == "any" and not self.forced_tools
        return "auto" if is_refused else request.tool_choice

    def sent_thinking(self, request: ModelRequest) -> SentThinking:
        return sent_thinking(request.settings, self.thinking_support, self.output_tokens(request))

    @property
    def thinking_support(self) -> ThinkingSupport:
        return ThinkingSupport(self.thinking_forms, self.thinking_levels)

    def output_tokens(self, request: ModelRequest) -> int:
        """Return the output limit to send: within the model's own limit, and within the room that the input leaves."""
        limit = request.max_output_tokens
        if self.max_output_tokens is not None:
            limit = min(limit, self.max_output_tokens)
        if self.window is not None:
            limit = min(limit, max(self.window - self.input_tokens(request), MIN_OUTPUT_TOKENS))
        return limit

    def input_tokens(self, request: ModelRequest) -> int:
        """Return an estimate of the tokens that the model counts for a request."""
        return ceil(request_bytes(request) * self.tokens_per_byte)


_LACKS: dict[Lack, dict[str, Any]] = {
    "tools": {"native_tools": False, "answer_tool": False},
    "tool_choice": {"forced_tools": False},
    "response_format": {"response_format": False},
    "system_role": {"system_role": False},
    "stream_options": {"stream_options": False},
    "images": {"images": False},
    "documents": {"documents": False},
}
"""The changes to a dialect, by what an endpoint lacks."""

_LACKED_FORMS: dict[Lack, ThinkingForm] = {"effort": "effort", "thinking_tokens": "tokens"}


def dialect_at(dialect: Dialect, settings: EndpointSettings) -> Dialect:
    """Return the dialect at an endpoint before the first refusal."""
    changes = {name: value for lack in settings.lacks for name, value in _LACKS.get(lack, {}).items()}
    lacked = {_LACKED_FORMS[lack] for lack in settings.lacks if lack in _LACKED_FORMS}
    forms = tuple(form for form in dialect.thinking_forms if form not in lacked)
    return replace(dialect, **changes, thinking_forms=forms, window=settings.context_window)


def request_bytes(request: ModelRequest) -> int:
    """Return the bytes that are sent to a model: instructions, messages, tools."""
    tools = [(tool.name, tool.description, tool.parameters) for tool in request.tools]
    messages = [message.parts for message in request.messages]
    media = sum(part.text_bytes for message in request.messages for part in message.media)
    return len(to_json((request.system, messages, tools, request.output_schema))) + media


def learned_dialect(dialect: Dialect, request: ModelRequest, refusal: Refusal) -> Dialect | None:
    """Return the dialect to try next, or None if the refusal names nothing that can be left out or lowered.

    A setting whose value is out of range stays, because the run asked for it and should see the error. Only the output
    limit is lowered to what the model allows.
    """
    if refusal.kind == "ContextOverflow":
        return _window_lesson(dialect, request, refusal)
    return _first_lesson(_lessons(refusal), dialect, request, refusal.error.text)


def _window_lesson(dialect: Dialect, request: ModelRequest, refusal: Refusal) -> Dialect | None:
    """Lower the output limit to the room after the input. Return None if that is too little, or does not help."""
    limit, size = dialect.output_tokens(request), request_bytes(request)
    stated = stated_tokens(refusal.error.message, limit)
    if stated.window is None:  # the refusal does not state if input or output was too much
        lower = limit // 4
        may_help = lower >= MIN_OUTPUT_TOKENS and not refusal.in_stream
        return replace(dialect, max_output_tokens=lower) if may_help else None
    used = stated.used
    if used is None or not stated.is_exact:
        # a second refusal shows that the first estimate was too low
        estimate = ceil(dialect.input_tokens(request) * (1.25 if dialect.window is not None else 1))
        used = max(estimate, used or 0)
    if stated.window - used < min(limit, MIN_OUTPUT_TOKENS):
        return None
    lesson = replace(dialect, window=stated.window, tokens_per_byte=used * MARGIN / max(size, 1))
    return lesson if lesson.output_tokens(request) < limit else None


_Learn = Callable[[Dialect, ModelRequest, str], Dialect | None]
"""Returns the lesson of a refusal's text: the dialect to try next, or None if the text is about something else."""

_IsSent = Callable[[Dialect, ModelRequest], bool]


def _first_lesson(learners: Iterable[_Learn], dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    lessons = (learn(dialect, request, refusal) for learn in learners)
    return next((lesson for lesson in lessons if lesson is not None), None)


def _change_if(is_sent: _IsSent, pattern: str | re.Pattern[str], **changes: Any) -> _Learn:
    """Return a function that applies `changes` if `is_sent` holds and the refusal matches the pattern."""

    def learn(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
        is_refused = is_sent(dialect, request) and re.search(pattern, refusal)
        return replace(dialect, **changes) if is_refused else None

    return learn


def _has_tools(request: ModelRequest) -> bool:
    """Return whether the request has calls, or tools other than the answer's. Instructions can replace the answer's."""
    return any(tool.name != FINAL_ANSWER for tool in request.tools) or any(each.calls for each in request.messages)


_tools_lesson = _change_if(lambda d, r: d.native_tools and _has_tools(r), _NO_TOOLS, native_tools=False)
_schema_lesson = _change_if(
    lambda d, r: d.response_format and r.output_schema is not None, _SCHEMA, response_format=False
)
_thinking_lesson = _change_if(lambda d, r: d.thinking, _STALE_THINKING, thinking=False)
_system_lesson = _change_if(lambda d, r: d.system_role, _NO_SYSTEM_ROLE, system_role=False)
_turns_lesson = _change_if(lambda d, r: not d.alternating, _ALTERNATION, alternating=True)


def _effort_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    support = support_after_refusal(dialect.sent_thinking(request), dialect.thinking_support, refusal)
    return support and replace(dialect, thinking_forms=support.forms, thinking_levels=support.levels)


_NEWER_LIMIT = "max_completion_tokens"
_FIELD_LESSONS = (
    _change_if(lambda d, r: d.tokens_field == "max_tokens", _NEWER_LIMIT, tokens_field=_NEWER_LIMIT),
    _change_if(lambda d, r: d.tokens_field != "max_tokens", _NEWER_LIMIT, tokens_field="max_tokens"),
    _change_if(lambda d, r: d.stream_options, "stream_options", stream_options=False),
    _change_if(lambda d, r: d.encrypted_reasoning, r"[Ee]ncrypted.content|\binclude\b", encrypted_reasoning=False),
    _change_if(lambda d, r: d.strict_tools, r"\bstrict\b", strict_tools=False),
    _change_if(lambda d, r: d.forced_tools and r.tool_choice == "any", "tool_choice", forced_tools=False),
    _change_if(lambda d, r: d.answer_tool and [t.name for t in r.tools] == [FINAL_ANSWER], "tool", answer_tool=False),
)
"""A refusal that names `max_completion_tokens` asks for the other field, whichever of the two was sent."""


def _field_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    return _first_lesson(_FIELD_LESSONS, dialect, request, refusal) if _REFUSED.search(refusal) else None


_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": r"\bseed\b",
    "stop": r"\bstop(?:_sequences)?\b",
    "service_tier": "service_tier",
    "parallel_tool_calls": "parallel_tool",
    "cache_ttl": r"\bttl\b",
}
"""The pattern that finds a setting's name in a refusal, by setting."""


def _setting_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if not _REFUSED.search(refusal):
        return None
    sent = {name for name in _SETTINGS if getattr(dialect.settings(request), name) is not None}
    named = next((name for name in _SETTINGS if name in sent and re.search(_SETTINGS[name], refusal)), None)
    return None if named is None else replace(dialect, refused=dialect.refused | {named})


_MEDIA = re.compile(
    r"image|picture|vision|multi-?modal|mmproj|\bfiles?\b|\bpdf\b|document|media"
    r"|must be (?:a )?(?:valid )?string|unknown variant|unsupported content|content.{0,60}\btype\b"
    r"|invalid message format",
    re.IGNORECASE,
)
"""Refusals of content that is not text, in the words of OpenAI, Mistral, Groq, DeepSeek, vLLM, llama.cpp, Ollama."""

_DOCUMENT = re.compile(r"\bfiles?\b|\bpdf\b|document|input_file", re.IGNORECASE)

_BAD_MEDIA = re.compile(
    r"could not process|unable to process|corrupt|decod|download|too (?:large|big|many|small)|exceed|dimension|pixel"
    r"|maximum|at most [1-9]|limit|password|invalid (?:image|pdf|base64|file)",
    re.IGNORECASE,
)
"""Refusals of one picture or document, not of all."""


def _media_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    """Send words instead of documents, or of pictures. If the refusal names neither, try without documents first."""
    if not _MEDIA.search(refusal):
        return None
    sent = {part.kind for message in request.messages for part in message.media}
    is_about_images = "image" in sent and "image" in refusal and not _DOCUMENT.search(refusal)
    if "document" in sent and not is_about_images:
        return replace(dialect, documents=False)
    return replace(dialect, images=False) if sent else None


def temporary_changes(lesson: Dialect, before: Dialect, refusal: Refusal) -> Set[str]:
    """Return the fields that a lesson changes for this request only.

    A bad picture, a lost container or an error of the server shows nothing about the model.
    """
    fields = {"images", "documents"} if _BAD_MEDIA.search(refusal.error.message) else set[str]()
    if _LOST_CONTAINER.search(refusal.error.text) or refusal.status >= 500:
        fields.add("kept_fields")
    return {name for name in fields if getattr(lesson, name) != getattr(before, name)}


_LOST_CONTAINER = re.compile(
    r"container.{0,80}(?:not (?:be )?found|(?:not|n't) exist|expired|is required|no longer|deleted|terminated|invalid"
    r"|unavailable|not available)|(?:no such|not find|unknown|invalid|expired|deleted) .{0,20}container"
    r"|expected container_id",
    re.IGNORECASE,
)
"""Refusals by Anthropic and OpenAI because the container that ran code for the conversation is gone."""


def _kept_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    names = kept_names(request.messages) if dialect.kept_fields else ()
    is_named = _REFUSED.search(refusal) and any(re.search(rf"\b{re.escape(name)}\b", refusal) for name in names)
    is_lost = names and _LOST_CONTAINER.search(refusal)
    return replace(dialect, kept_fields=False) if is_named or is_lost else None


def _old_container_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    """Leave out a container that may be gone. Anthropic may report that as a server error without a reason."""
    try:
        expiry = datetime.fromisoformat(latest_container(request.messages).expires_at).astimezone()
        is_expired = expiry < datetime.now(UTC)
    except (ValueError, OverflowError):
        return None
    return replace(dialect, kept_fields=False) if dialect.kept_fields and is_expired else None


def _ceiling_lesson(dialect: Dialect, request: ModelRequest, refusal: str) -> Dialect | None:
    if not _OUTPUT_LIMIT.search(refusal):
        return None
    numbers = [int(number) - (1 if is_exclusive else 0) for number, is_exclusive in _CEILING.findall(refusal)]
    below = [number for number in numbers if 0 < number < dialect.output_tokens(request)]
    return replace(dialect, max_output_tokens=min(below)) if below else None


_LESSONS: tuple[_Learn, ...] = (
    *(_tools_lesson, _effort_lesson, _schema_lesson, _thinking_lesson, _field_lesson, _setting_lesson, _kept_lesson),
    *(_system_lesson, _turns_lesson, _ceiling_lesson, _media_lesson),
)


def _lessons(refusal: Refusal) -> tuple[_Learn, ...]:
    if refusal.kind == "InvalidRequest":
        return _LESSONS
    if refusal.kind == "ModelNotFound":  # OpenRouter: no server takes tools or media; Anthropic: no container
        return (_tools_lesson, _kept_lesson, _media_lesson)
    if refusal.status < 500:
        return ()
    # some servers report a failed chat template as a server error
    usual = (_tools_lesson, _system_lesson, _turns_lesson, _media_lesson)
    return (*usual, _old_container_lesson) if refusal.status == 500 and not refusal.in_stream else usual


LESSON_S = 6 * 3_600.0
"""Seconds for which a lesson counts. After an update, a server may accept what it has refused."""

MAX_KEPT_LESSONS = 256
_MAX_FILE_BYTES = 1_000_000

_DIALECT = TypeAdapter(Dialect)


def lesson_key(url: str, model: str, usual: Dialect) -> str:
    """Return the key of a model's lessons at a protocol's URL. Other settings of the endpoint change the key."""
    return sha256(json.dumps([url, model, _plain(usual)], sort_keys=True).encode()).hexdigest()


class LessonFile:
    """The file of lessons that the workers of a state folder share. Each lesson expires by the wall clock.

    The file holds no API key, no address and nothing of a conversation.
    """

    def __init__(self, path: Path) -> None:
        self._file = OwnFile(path, lambda text: as_object(json.loads(text)), max_bytes=_MAX_FILE_BYTES, denied=0o022)

    def get(self, key: str) -> Dialect | None:
        lesson = as_object(self._read().get(key))
        if 0 < _until(lesson) - time.time() <= LESSON_S:
            with suppress(ValidationError):
                return _DIALECT.validate_python(lesson.get("dialect"), extra="forbid")
        return None

    def keep(self, key: str, dialect: Dialect) -> None:
        """Add a lesson. If the file cannot be written, the lesson is lost."""
        now = time.time()
        others = {name: each for name, each in self._read().items() if name != key and _until(each) > now}
        by_age = sorted(others, key=lambda name: _until(others[name]))
        newest = by_age[-(MAX_KEPT_LESSONS - 1) :]  # the new lesson is one more
        lessons = {name: others[name] for name in newest} | {key: {"until": now + LESSON_S, "dialect": _plain(dialect)}}
        with suppress(OSError):
            write_atomically(self._file.path, json.dumps(lessons).encode(), with_folder=True)

    def _read(self) -> dict[str, Any]:
        return self._file.read() or {}


def _until(lesson: object) -> float:
    until = as_object(lesson).get("until")
    return until if isinstance(until, float) else 0.0


def _plain(dialect: Dialect) -> dict[str, Any]:
    """Return the fields as JSON. Sets are sorted, because their order differs between processes."""
    fields = asdict(dialect).items()
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in fields}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
