"""Settings of model calls: of an agent, a run, a critic or a tier."""

from typing import Literal, Self

from pydantic import Field, model_validator

from orga.workflows.types.record import CheckedInput, replace_fields

Effort = Literal["none", "low", "medium", "high", "max"]


class ModelSettings(CheckedInput):
    """Settings of model calls. A setting that is null is not sent, so the provider's own default holds."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    """0 is sent. Null leaves it to the provider."""
    effort: Effort | None = None
    """How much the model thinks: `none`, `low`, `medium`, `high` or `max`. Null leaves it to the provider."""
    thinking_tokens: int | None = Field(default=None, ge=1, le=10**7)
    """Tokens that the model may use for thinking in one reply, in place of an effort."""

    @model_validator(mode="after")
    def _sets_thinking_once(self) -> Self:
        if self.effort is not None and self.thinking_tokens is not None:
            raise ValueError("effort and thinking_tokens exclude each other; set one of them to null")
        return self

    def or_else(self, other: "ModelSettings") -> "ModelSettings":
        """Return these settings, and those of `other` where these have none. Thinking comes from one of the two."""
        own = {name: value for name in ModelSettings.model_fields if (value := getattr(self, name)) is not None}
        settled = own.keys() | (_THINKING if own.keys() & _THINKING else frozenset[str]())
        more = {name: getattr(other, name) for name in ModelSettings.model_fields.keys() - settled}
        return ModelSettings.model_validate(more | own)

    def with_effort(self, effort: Effort) -> Self:
        """Return the settings with an effort, in place of any thinking tokens."""
        return replace_fields(self, {"effort": effort, "thinking_tokens": None})


NO_SETTINGS = ModelSettings()

_THINKING = frozenset({"effort", "thinking_tokens"})
"""The settings that say how much a model thinks. At most one of them is set."""
