"""Translates the setting for the amount of thinking into the form of each provider.

Some providers accept a level of effort, some accept a number of tokens, and some accept both. The table at the end has
a row for each. A level that a model lacks is replaced by the nearest level, and a form that it lacks by the other form.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from orga.workflows.types.models.call_settings import Effort, ModelSettings

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All levels of effort that providers know, from least to most. The setting of a run has some of them."""

ThinkingForm = Literal["effort", "tokens"]

CLAUDE_MIN_TOKENS = 1_024
"""The fewest tokens of thinking that Claude accepts."""

_TOKENS: dict[Effort, int] = {"none": 0, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_768}
"""Tokens in place of a level, for models that accept only tokens."""


class ThinkingSupport(NamedTuple):
    """The forms and levels of thinking that a model accepts."""

    forms: tuple[ThinkingForm, ...]
    """If there are several, the first one is preferred."""
    levels: tuple[str, ...]
    """The levels of effort."""


class SentThinking(NamedTuple):
    """The amount of thinking in a request. If both are None, nothing is sent."""

    effort: str | None = None
    tokens: int | None = None
    """0 turns thinking off."""

    @property
    def form(self) -> ThinkingForm | None:
        if self.effort is not None:
            return "effort"
        return None if self.tokens is None else "tokens"

    @property
    def is_off(self) -> bool:
        return self.effort == "none" or self.tokens == 0


def sent_thinking(settings: ModelSettings, support: ThinkingSupport, limit: int) -> SentThinking:
    """Return what to send to a model with this support.

    Args:
        limit: The output limit, which includes thinking. A setting that leaves no room for an answer is lowered to half
            of the limit.
    """
    effort, tokens = settings.effort, settings.thinking_tokens
    wanted: ThinkingForm = "effort" if tokens is None else "tokens"
    form = wanted if wanted in support.forms else next(iter(support.forms), None)
    if effort is None:
        if tokens is None:
            return SentThinking()
        effort = _level_of(tokens)
    if form == "effort" and support.levels:
        wanted_rank = LEVELS.index(effort)
        # if two levels are equally near, the lower one costs less
        ranks = {level: LEVELS.index(level) for level in support.levels}
        return SentThinking(effort=min(ranks, key=lambda level: (abs(ranks[level] - wanted_rank), ranks[level])))
    if form == "tokens":
        tokens = _TOKENS[effort] if tokens is None else tokens
        return SentThinking(tokens=tokens if tokens < limit else limit // 2)
    return SentThinking()


def _level_of(thinking_tokens: int) -> Effort:
    for level, tokens in _TOKENS.items():
        if tokens >= thinking_tokens:
            return level
    return "max"


def replaced_setting_text(settings: ModelSettings, sent: SentThinking) -> str:
    """Return a warning if what is sent differs from the setting, or ""."""
    wanted = f"effort {settings.effort!r}" if settings.effort else f"thinking_tokens {settings.thinking_tokens}"
    if sent.form is None:
        is_set = settings.effort is not None or settings.thinking_tokens is not None
        return f"{wanted} is left out, because the model does not accept it" if is_set else ""
    if (sent.effort, sent.tokens) == (settings.effort, settings.thinking_tokens):
        return ""
    instead = f"effort {sent.effort!r}" if sent.effort is not None else f"{sent.tokens} tokens"
    return f"{wanted} is sent as {instead}"


_ABOUT_THINKING = re.compile(
    r"effort|budget|\breasoning\b|thinking[._](?:type|config|level|mode|enabled|adaptive|disabled)"
    r"|(?:adaptive|extended|disabl\w+|enabl\w+) thinking|thinking\b.{0,40}(?:n[o']t support|unsupported|permitted)",
    re.IGNORECASE,
)
"""Words of a refusal that is about thinking."""

_OTHER_CAUSES = re.compile(r"tool_choice|temperature|top_p|signature|encrypted|\bitem\b", re.IGNORECASE)
"""Words of a refusal that mentions thinking but is about something else, for which `dialect.py` has other lessons."""


def support_after_refusal(sent: SentThinking, support: ThinkingSupport, refusal: str) -> ThinkingSupport | None:
    """Return what a model accepts according to its refusal, or None if the refusal is about something else.

    - A refusal that names other levels: the model accepts only these.
    - A refusal that names only the sent level: the model accepts all others.
    - Any other refusal: the model does not accept the form.
    """
    if sent.form is None or not _ABOUT_THINKING.search(refusal) or _OTHER_CAUSES.search(refusal):
        return None
    if sent.effort is not None:
        named = tuple(each for each in LEVELS if each != sent.effort and re.search(rf"\b{each}\b", refusal))
        if named:
            return support._replace(levels=named)
        names_level = re.search(rf"['\"`]{sent.effort}\b", refusal) or (sent.is_off and "disabled" in refusal)
        if names_level and (rest := tuple(each for each in support.levels if each != sent.effort)):
            return support._replace(levels=rest)
    return support._replace(forms=tuple(form for form in support.forms if form != sent.form))


@dataclass(frozen=True)
class ThinkingWire:
    """The form in which one provider takes the amount of thinking."""

    fields: Callable[[SentThinking], dict[str, Any]]
    """Returns the fields of the body. It is not called if nothing is sent."""
    forms: tuple[ThinkingForm, ...] = ("effort",)
    levels: tuple[str, ...] = ("none", "low", "medium", "high", "max")


def _openrouter_fields(sent: SentThinking) -> dict[str, Any]:
    effort = "none" if sent.is_off else sent.effort
    return {"reasoning": {"effort": effort} if effort else {"max_tokens": sent.tokens}}


def _gemini_fields(sent: SentThinking) -> dict[str, Any]:
    if sent.effort is not None:
        return {"reasoning_effort": sent.effort}
    return {"extra_body": {"google": {"thinking_config": {"thinking_budget": sent.tokens}}}}


def _deepseek_fields(sent: SentThinking) -> dict[str, Any]:
    if sent.is_off:
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled"}, "reasoning_effort": sent.effort}


CHAT_THINKING = ThinkingWire(lambda sent: {"reasoning_effort": sent.effort})

_BY_PROVIDER = {"openrouter": ThinkingWire(_openrouter_fields, ("effort", "tokens"))}
_GEMINI = ThinkingWire(_gemini_fields, ("effort", "tokens"), ("none", "low", "medium", "high"))
_BY_HOST = {
    "generativelanguage.googleapis.com": _GEMINI,
    "aiplatform.googleapis.com": _GEMINI,
    "api.deepseek.com": ThinkingWire(_deepseek_fields, levels=("none", "low", "high", "max")),
}


def chat_thinking(provider: str, base_url: str) -> ThinkingWire:
    """Return the wire of a server with OpenAI's chat protocol, by its host, else by its provider."""
    host = urlsplit(base_url).hostname or ""
    if host.endswith("-aiplatform.googleapis.com"):  # the host begins with a region
        host = "aiplatform.googleapis.com"
    return _BY_HOST.get(host) or _BY_PROVIDER.get(provider, CHAT_THINKING)
