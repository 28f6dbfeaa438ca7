"""Anthropic's messages protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orga.activities.adapters.models.anthropic_reply import MessageReader
from orga.activities.adapters.models.anthropic_request import messages_body
from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.failures import Failures
from orga.activities.ports import ModelRequest

API_VERSION = "2023-06-01"
"""The last one that takes a temperature; later ones refuse it from every model, at any value."""


@dataclass(frozen=True)
class AnthropicMessages:
    """A `Wire`."""

    provider: str = "anthropic"
    path: str = "/messages"
    name_pattern: str = "/messages"
    may_be_missing: bool = False

    def dialect(self, model: str) -> Dialect:
        """Return one dialect for all, until a model refuses it, as those before Claude 4.5 refuse a schema."""
        return Dialect(sure_schema=True, strict_schema=True)

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the JSON to send."""
        return messages_body(request, dialect)

    def reader(self, request: ModelRequest, on_text: Callable[[str], None], failures: Failures) -> MessageReader:
        """Return a reader for the answer to `request`."""
        return MessageReader(self.provider, request, on_text, failures)
