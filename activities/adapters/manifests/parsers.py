"""What came back, written for the model: parsed and held against its schema, or the end of it behind an error."""

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
"""An error's text is cut at its end by the activity, and the end of an output says what failed."""


def parsed_output(text: str, output: Output) -> str:
    """Return the text for the model: as it is, or the JSON of what the parser made of it.

    Raises:
        ToolError: Kind BadOutput: it cannot be parsed; OutputMismatch: it does not fit a strict schema.
    """
    value = _PARSERS[output.parser](text, output)
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    errors = [] if output.json_schema is None else argument_errors(output.json_schema, value)
    if not errors:
        return told or NO_OUTPUT
    misfit = f"the output does not fit its schema: {'; '.join(errors)}"
    if output.strict:
        raise ToolError(misfit, kind="OutputMismatch", acted="yes")
    return f"[Warning] {misfit}\n{told}"


def error_tail(said: str) -> str:
    """Return the end of what was said, to stand behind an error."""
    said = said.strip()
    return f". The end of what it said:\n{said[-_TAIL_CHARS:]}" if said else ", and said nothing"


def output_pattern(pattern: str) -> Any:
    """Return a pattern that is matched in linear time, since who wrote the output is a stranger.

    Raises:
        ValueError: It is none of RE2.
    """
    return compiled_pattern(f"(?m){pattern}")


def _parse_text(text: str, output: Output) -> str:
    return text.rstrip("\n")


def _parse_json(text: str, output: Output) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        why = f"the output is no JSON ({error}); it begins with {text[:200]!r}"
        raise ToolError(why, kind="BadOutput", acted="yes") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _parse_lines(text: str, output: Output) -> list[str]:
    return text.splitlines()


def _parse_matches(text: str, output: Output) -> list[Any]:
    found: list[Any] = []
    for match in output_pattern(output.pattern or "").finditer(text):
        if len(found) == MAX_MATCHES:
            break
        found.append(match.groupdict() or match.group())
    return found


_PARSERS: dict[str, Callable[[str, Output], Any]] = {
    "text": _parse_text,
    "json": _parse_json,
    "lines": _parse_lines,
    "regex": _parse_matches,
}
