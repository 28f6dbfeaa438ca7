"""Secrets kept out of log lines: the values that the environment names as such, and credentials of a header."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

MIN_SECRET_CHARS = 8
"""Shorter values are no secrets worth the name, and hiding them would hole every line."""

_HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(r"(?i)(?:key|token|secret|password|passwd|credentials?|headers)$")
_CREDENTIAL = re.compile(r"(?i)\b(?:bearer|basic)\s+[\w\-.~+/=]{8,}|(?<=://)[^/\s@\"]+(?=@)")


@dataclass(frozen=True)
class SecretMask:
    """Texts to hide, the longest first."""

    secrets: tuple[str, ...]

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "SecretMask":
        """Take the variables whose name ends as a secret's does (`OPENAI_API_KEY`, `OTEL_EXPORTER_OTLP_HEADERS`)."""
        values = {v for name, v in environment.items() if _SECRET_NAME.search(name) and len(v) >= MIN_SECRET_CHARS}
        escaped = {json.dumps(value, ensure_ascii=False)[1:-1] for value in values}
        return cls(tuple(sorted(values | escaped, key=len, reverse=True)))

    def hidden(self, line: str) -> str:
        """Return the line without them."""
        for secret in self.secrets:
            line = line.replace(secret, _HIDDEN)
        return _CREDENTIAL.sub(_HIDDEN, line)
