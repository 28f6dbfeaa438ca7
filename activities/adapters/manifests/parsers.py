"""Renders output for the model: parsed and checked against its schema, or only its end after an error."""

import json
from collections.abc import Callable
from typing import Any

from orga.activities.adapters.manifests.manifest import Output
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ToolError
from orga.workflows.types.text import compiled_pattern

MAX_MATCHES = 1_000
NO_OUTPUT = "(no output)"

_TAIL_CHARS = 2_500
"""Characters. The activity cuts the end of an error's text, but the end of the output shows what failed."""


def parsed_output(text: str, output: Output) -> str:
    """Return the text for the model: unchanged, or as the parser's JSON.

    Raises:
        ToolError: Kind BadOutput if it cannot be parsed, OutputMismatch if it does not fit a strict schema.
    """
    value = _PARSERS[output.parser](text, output)
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    errors = [] if output.json_schema is None else argument_errors(output.json_schema, value)
    if not errors:
        return shown or NO_OUTPUT
    misfit = f"the output does not fit its schema: {'; '.join(errors)}"
    if output.strict:
        raise ToolError(misfit, kind="OutputMismatch", acted="yes")
    return f"[Warning] {misfit}\n{shown}"


def error_tail(output: str) -> str:
    """Return the end of the output, as the end of an error's text."""
    output = output.strip()
    return f". The end of its output:\n{output[-_TAIL_CHARS:]}" if output else ", without output"


def output_pattern(pattern: str) -> Any:
    """Return a pattern of RE2, because anybody can have written the output. Raise ValueError if it is none."""
    return compiled_pattern(f"(?m){pattern}")


def _parse_json(text: str, output: Output) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        why = f"the output is no JSON ({error}); it begins with {text[:200]!r}"
        raise ToolError(why, kind="BadOutput", acted="yes") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _parse_matches(text: str, output: Output) -> list[Any]:
    found: list[Any] = []
    for match in output_pattern(output.pattern or "").finditer(text):
        if len(found) == MAX_MATCHES:
            break
        found.append(match.groupdict() or match.group())
    return found


_PARSERS: dict[str, Callable[[str, Output], Any]] = {
    "text": lambda text, _: text.rstrip("\n"),
    "json": _parse_json,
    "lines": lambda text, _: text.splitlines(),
    "regex": _parse_matches,
}
