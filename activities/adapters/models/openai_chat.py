"""The chat-completions protocol: OpenAI, OpenRouter, Ollama and every server that imitates it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orga.activities.adapters.models.dialect import Dialect
from orga.activities.adapters.models.failures import Failures
from orga.activities.adapters.models.openai_reply import ChatReader
from orga.activities.adapters.models.openai_request import chat_body
from orga.activities.ports import ModelRequest

_REASONING = re.compile(r"o\d|gpt-[5-9]")
"""OpenAI's own names of models that refuse `max_tokens`; routers translate it themselves."""


@dataclass(frozen=True)
class OpenAIChat:
    """A `Wire`. `provider` tells OpenRouter's additions and prices apart."""

    provider: str
    path: str = "/chat/completions"
    name_pattern: str = r"chat[ /_-]?completions?"
    may_be_missing: bool = False

    def dialect(self, model: str) -> Dialect:
        """Return OpenAI's newer name of the output limit for the models that take no other."""
        return Dialect(
            tokens_field="max_completion_tokens" if _REASONING.match(model) else "max_tokens",
            sure_schema=self.provider == "openai" or (self.provider == "openrouter" and model.startswith("openai/")),
        )

    def body(self, request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
        """Return the JSON to send."""
        return chat_body(request, dialect, openrouter=self.provider == "openrouter")

    def reader(self, request: ModelRequest, on_text: Callable[[str], None], failures: Failures) -> ChatReader:
        """Return a reader for the answer to `request`."""
        return ChatReader(self.provider, request, on_text, failures)
