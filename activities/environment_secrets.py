"""Which values of an environment are secrets: by the name of a variable, or by where they stand in its value."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

_NAME = re.compile(
    r"(?i)(?:key|token|secret|password|passwd|passphrase|credentials?|headers|auth|authorization|bearer"
    r"|webhook(?:_?url)?|(?:^|_|db)(?:pass|pwd|pw|pat|dsn|cookies?|sas|jwt|signature))"
    r"(?:_?(?:v?\d+|prod(?:uction)?|staging|dev|test|live|ci|base|old|new|next|previous|ro|rw|pem|json|b64|base64))*$"
)
"""What it ends in: `OPENAI_API_KEY`, `OTEL_EXPORTER_OTLP_HEADERS`."""

_FOLDER = frozenset({"PWD"})
"""What every shell sets to the folder it is in; hiding that would hole each path of a project."""

_PARTS = re.compile(r"[,\r\n]")
"""Between the keys of a list, the lines of one."""

_WITHIN = re.compile(
    r"(?i)://[^\s/?#:@]*:([^\s/?#]+)@"  # the password of an address
    r"|https?://([^\s/?#:@]+)@"  # a token in front of a host
    r"|(?:password|passwd|pwd|accountkey|sharedaccesskey|secret|token|api_?key|\bsig)=([^;&\s'\"]+)"
)

COMMON = frozenset({"postgres", "password", "passw0rd", "changeme", "changeit", "localhost", "username", "minioadmin"})
"""Values that stand in every other text; hiding them would hole it and protect nothing."""


def secret_values(environment: Mapping[str, str], also: Iterable[str] = ()) -> Iterator[str]:
    """Yield what is secret in the variables, those in `also` whatever their names end in."""
    names = {*filter(_NAME.search, environment.keys() - _FOLDER), *also}
    named = [environment.get(name, "") for name in names]
    values = [each for value in named for each in _with_parts(value)]
    for value in environment.values():
        values += [found for match in _WITHIN.finditer(value) for found in filter(None, match.groups())]
        values += _fields(value)
    yield from (form for value in values for form in {value, unquote(value)} if form.lower() not in COMMON)


def _with_parts(value: str) -> Iterator[str]:
    yield value
    yield from (part for part in map(str.strip, _PARTS.split(value)) if not part.startswith("-----"))


def _fields(text: str) -> Iterator[str]:
    """Yield the secrets of a JSON object, as an account of a cloud's service is one."""
    try:
        given: Any = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return
    level = [given]
    while level:
        objects = [cast("dict[str, Any]", each) for each in level if isinstance(each, dict)]
        for value in (value for each in objects for key, value in each.items() if _NAME.search(key)):
            yield from _with_parts(value) if isinstance(value, str) else ()
        level = [inner for each in objects for inner in each.values()]
