"""Settings of model calls, which agents, runs, critics and tiers have."""

from collections.abc import Set
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from orga.workflows.types.record import CheckedInput, replace_fields

Effort = Literal["none", "low", "medium", "high", "max"]

Stops = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(min_length=1, max_length=4)]


class ModelSettings(CheckedInput):
    """Settings of model calls. A setting that is null is not sent, so the provider's own default applies."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    """0 is sent. Null leaves it to the provider."""
    effort: Effort | None = None
    """The amount of thinking: `none`, `low`, `medium`, `high` or `max`. Null leaves it to the provider."""
    thinking_tokens: int | None = Field(default=None, ge=1, le=10**7)
    """Tokens that the model may use for thinking in one reply, in place of an effort."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """The share of probability that the next token is chosen from."""
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Makes replies more repeatable, if the provider supports it."""
    stop: Stops | None = None
    """Texts that end a reply. They are not part of it."""
    service_tier: str | None = Field(default=None, pattern=r"^[a-z][a-z_]{0,39}$")
    """The provider's class of service, such as `flex` or `priority`."""
    parallel_tool_calls: bool | None = None
    """False: at most one call in a reply."""
    cache_ttl: Literal["5m", "1h"] | None = None
    """Lifetime of Anthropic's prompt cache. An hour costs more to write."""
    silence_s: float | None = Field(default=None, ge=1, le=86_400)
    """Seconds without a byte, after which a model call is cut off and tried again. Null takes that of the endpoint."""

    @model_validator(mode="after")
    def _sets_thinking_once(self) -> Self:
        if self.effort is not None and self.thinking_tokens is not None:
            raise ValueError("effort and thinking_tokens exclude each other; set one of them to null")
        return self

    def or_else(self, other: "ModelSettings") -> "ModelSettings":
        """Return these settings, with those of `other` for null ones. Thinking is set by only one of the two."""
        own = self.given(*ModelSettings.model_fields)
        missing = ModelSettings.model_fields.keys() - own.keys()
        if own.keys() & _THINKING:
            missing -= _THINKING
        return ModelSettings.model_validate({name: getattr(other, name) for name in missing} | own)

    def given(self, *names: str) -> dict[str, Any]:
        """Return the values of the named settings that are not null."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def without(self, names: Set[str]) -> Self:
        return replace_fields(self, dict.fromkeys(names)) if names else self

    def with_effort(self, effort: Effort) -> Self:
        """Return the settings with an effort, in place of any thinking tokens."""
        return replace_fields(self, {"effort": effort, "thinking_tokens": None})


NO_SETTINGS = ModelSettings()

_THINKING = frozenset({"effort", "thinking_tokens"})
"""The settings for how much a model thinks. At most one of them is set."""
