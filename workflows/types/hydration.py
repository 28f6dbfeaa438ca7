"""Pre-hydration: the references in a task are looked up before the first reasoning step."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from orga.workflows.types.record import CheckedInput, Record, replace_fields
from orga.workflows.types.text import LinearPattern

CONTEXT_BLOCK = "[PRE_HYDRATED_CONTEXT]"
"""First line of the message that holds the looked-up content."""


def _checked_pattern(pattern: str) -> str:
    LinearPattern(pattern)
    return pattern


class CustomPattern(CheckedInput):
    """A further kind of reference, such as tickets: a type and a regular expression."""

    ref_type: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    """Its name, which `resolution_tools` uses as a key."""
    pattern: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_checked_pattern)]
    """Regular expression (RE2) that finds it in the task."""


class PreHydration(CheckedInput):
    """`pre_hydration` of the config. Null takes these defaults."""

    enabled: bool = True
    """True if references in the task are looked up before the first step."""
    custom_patterns: tuple[CustomPattern, ...] = Field(default=(), max_length=20)
    resolution_tools: dict[str, str] = {}
    """Reference type to tool. It extends the defaults: `url` `fetch_url`, `file` `read_file`, `issue` `read_issue`,
    `pr` `read_pull_request`, each if the run is offered that tool.
    """
    timeout_s: float = Field(default=15.0, ge=0.001, le=3_600)
    """Seconds for all references together. Content that has arrived by then is used."""
    max_references: int = Field(default=10, ge=1, le=100)
    """References of one task. Further ones are not looked up."""
    max_context_tokens: int = Field(default=4_000, ge=1, le=100_000)
    """Tokens of all resolved content, at 4 bytes a token."""


class Reference(Record):
    """A reference in a task."""

    ref_type: str
    value: str
    """The text in the task: `#42`, `PR #55`, `./src/main.rs`."""


class Resolved(Record):
    """The result of a reference. `unresolvable`: no tool that the run may call takes it."""

    reference: Reference
    status: Literal["resolved", "failed", "unresolvable"]
    tool: str = ""
    content: str = ""
    """The text, or the reason why there is none."""

    def with_content(self, content: str) -> Self:
        return replace_fields(self, {"content": content})

    def with_failure(self, why: str) -> Self:
        return replace_fields(self, {"status": "failed", "content": why})
