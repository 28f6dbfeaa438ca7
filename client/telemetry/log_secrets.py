"""Secrets kept out of log lines: the values that the environment names as such, and credentials of a header."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orga.activities.known_secrets import HIDDEN, KnownSecrets

_CREDENTIAL = re.compile(r"(?i)\b(?:bearer|basic)\s+[\w\-.~+/=]{8,}|(?<=://)[^/\s@\"]+(?=@)")


@dataclass(frozen=True)
class SecretMask:
    """What to hide."""

    secrets: KnownSecrets

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ, also: Iterable[str] = ()) -> "SecretMask":
        """Take the variables that name secrets, and those that are named."""
        return cls(KnownSecrets.of_environment(environment, also))

    def hidden(self, line: str) -> str:
        """Return the line without them."""
        return _CREDENTIAL.sub(HIDDEN, self.secrets.hidden(line))
