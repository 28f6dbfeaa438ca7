"""Secrets that differ by the caller of a tool: by its run's tenant, or by a text in its trusted context.

Settings name them as `VARIABLE[tenant]` or `VARIABLE[trusted_context.user]`. The variable has the path of a JSON file
with an object: one secret for each tenant or user. The file is read again for each call, so that a secret can be
replaced while the worker runs. The caller's value selects an entry and nothing else: it is never part of a path or of a
name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.json_text import as_object

NO_CREDENTIALS = "NoCredentials"
"""Kind of the error if the caller has no secret that can be used. Nothing was sent."""

WORKER_ENTRY = "*"
"""The entry of the worker, which lists a server's tools with it. No call gets it, even if its tenant is named `*`."""

MAX_FILE_BYTES = 10_000_000


def is_by_caller(reference: str) -> bool:
    """Return whether a reference is `VARIABLE[SOURCE]`, and not only a variable."""
    return "[" in reference


@dataclass(frozen=True)
class CallerSecret:
    """A file of secrets, and the fact that selects one of them."""

    variable: str
    source: str
    """`tenant`, or a path such as `trusted_context.user`."""
    path: Path

    @classmethod
    def from_reference(cls, reference: str, env: Mapping[str, str]) -> Self | None:
        """Return the secret of `VARIABLE[SOURCE]`, or None if the reference is only a variable.

        Raises:
            ValueError: The variable is not set, or names no file of secrets. The text contains no secret.
        """
        if not is_by_caller(reference):
            return None
        variable, _, source = reference.removesuffix("]").partition("[")
        if not (path := env.get(variable, "").strip()):
            raise ValueError(f"the environment has no {variable}; set it to the path of a JSON file with the secrets")
        secret = cls(variable, source, Path(path))
        if not secret.path.is_absolute():
            raise ValueError(f"{variable}: has to be the absolute path of a JSON file")
        secret.entries()
        return secret

    def entries(self) -> dict[str, Any]:
        """Return the secrets by tenant or user. Raise ValueError, without any secret, if the file is unusable."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            why = type(error).__name__
            raise ValueError(f"{self.variable}: the file that it names cannot be read: {why}") from None
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{self.variable}: the file that it names has more than {MAX_FILE_BYTES:,} bytes")
        try:
            secrets: Any = json.loads(data)
        except (ValueError, RecursionError):
            secrets = None
        if not isinstance(secrets, dict):
            raise ValueError(  # noqa: TRY004
                f'{self.variable}: the file that it names is no JSON object such as {{"acme": "..."}}'
            )
        return as_object(cast("object", secrets))

    def caller_name(self, context: ToolContext) -> str:
        """Return the tenant or user of a call. Raise ToolError if its run names none."""
        value: object = {"tenant": context.tenant, "trusted_context": context.trusted_context}
        for key in self.source.split("."):
            value = as_object(value).get(key)
        if not isinstance(value, str) or not value:
            why = f"the call needs a secret by {self.source}, and the run has no such text; tell the operator"
            raise ToolError(why, kind=NO_CREDENTIALS)
        return value

    def for_call(self, context: ToolContext) -> str:
        """Return the caller's secret.

        Raises:
            ToolError: Kind NoCredentials, if the caller has no secret that a header can hold. The text has neither the
                caller's name nor a secret.
        """
        name = self.caller_name(context)
        try:
            entries = self.entries()
        except ValueError as error:  # somebody may be replacing the file
            raise ToolError(f"{error}; tell the operator", kind=NO_CREDENTIALS, retryable=True, acted="no") from None
        if name == WORKER_ENTRY or name not in entries:
            why = f"{self.variable} has no secret for the {self.source} of this run; tell the operator"
            raise ToolError(why, kind=NO_CREDENTIALS)
        return self._header_text(entries[name])

    def for_worker(self) -> str | None:
        """Return the worker's own secret, if there is one. Raise ValueError if no header can hold it."""
        secret = self.entries().get(WORKER_ENTRY)
        try:
            return None if secret is None else self._header_text(secret)
        except ToolError as error:
            raise ValueError(str(error)) from None

    def _header_text(self, secret: object) -> str:
        text = secret if isinstance(secret, str) else ""
        if text and text.isascii() and text.isprintable() and text == text.strip():
            return text
        why = f"the entry of {self.variable} is no line of printable ASCII without spaces around it; tell the operator"
        raise ToolError(why, kind=NO_CREDENTIALS)
