"""The HTTP request of a call: values are encoded where they stand, so none can change host, path or header."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, unquote, urlencode

from orga.activities.adapters.http import URL, InvalidURL
from orga.activities.adapters.manifests.manifest import Http
from orga.activities.adapters.manifests.secrets import Secrets
from orga.activities.adapters.manifests.template import Slot, Template, filled, only_slot, parsed, slots
from orga.activities.adapters.manifests.values import Values, as_text, as_texts, invalid

_SEPARATOR = re.compile(r"[/\\]")
_DECODINGS = 3
_HOLE = "\0"


@dataclass(frozen=True)
class HttpRequest:
    """What is sent. Its representation shows no header."""

    method: str
    url: URL
    headers: Mapping[str, str]
    secret_headers: Mapping[str, str]
    """Those with a secret in them: they go to the host of `url` only."""
    content: bytes

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.url})"


def request_of(http: Http, values: Values, secrets: Secrets) -> HttpRequest:
    """Return the request.

    Raises:
        ToolError: Kind InvalidArguments: a value that could lead elsewhere.
    """
    content_type, content = _body(http, values)
    plain, secret = _headers(http, values, secrets)
    if content_type and not any(name.lower() == "content-type" for name in (*plain, *secret)):
        plain["content-type"] = content_type
    return HttpRequest(http.method, _url(http, values), plain, secret, content)


def _url(http: Http, values: Values) -> URL:
    template = parsed(http.url)
    whole = only_slot(template)
    url = as_text(values[whole.name]) if whole else _located(template, values)
    pairs = _pairs(http.query, values)
    if pairs:
        url += ("&" if "?" in url else "?") + urlencode(pairs)
    try:
        return URL(url)
    except InvalidURL as error:
        raise invalid(f"the address that they make cannot be used: {error}") from None


def _located(template: Template, values: Values) -> str:
    """Return the URL; the part before the first placeholder, which names the host, is the manifest's alone."""
    path, question, query = _halves(template)
    located = filled(path, lambda slot: _segment(slot, values))
    shape = filled(path, lambda slot: _HOLE)  # a value has no slash any more: both have the same parts
    for own, part in zip(_after_host(shape), _after_host(located), strict=True):
        if _HOLE in own and (part == "" or any(map(_is_dots, _readings(part)))):
            raise invalid("a part of the URL's path would be empty, `.` or `..`; write another value")
    return located + question + filled(query, lambda slot: quote(as_text(values[slot.name]), safe=""))


def _halves(template: Template) -> tuple[Template, str, Template]:
    """Return what is before and after the first question mark that the manifest wrote."""
    for index, part in enumerate(template):
        if isinstance(part, str) and "?" in part:
            before, _, after = part.partition("?")
            return (*template[:index], before), "?", (after, *template[index + 1 :])
    return template, "", ()


def _after_host(url: str) -> list[str]:
    return url.partition("://")[2].split("/")[1:]


def _segment(slot: Slot, values: Values) -> str:
    """Return a value within a path. Some servers decode before they split, so `..` is refused in any spelling."""
    value = as_text(values[slot.name])
    if any(_is_dots(part) for reading in _readings(value) for part in _SEPARATOR.split(reading)):
        raise invalid(f"{slot.name}: `.` and `..` are refused as parts of a path")
    return quote(value, safe="")


def _readings(text: str) -> Iterator[str]:
    """Yield the text as it is, and as servers read it that decode it, once or again."""
    for _ in range(_DECODINGS):
        yield text
        text = unquote(text)


def _is_dots(part: str) -> bool:
    """Return whether a part means this folder or the one above; some servers cut what follows a semicolon."""
    return part.partition(";")[0] in (".", "..")


def _pairs(templates: Mapping[str, str], values: Values) -> list[tuple[str, str]]:
    """Return names with values; what has none is left out, a list is repeated."""
    pairs: list[tuple[str, str]] = []
    for name, source in templates.items():
        template = parsed(source)
        only = only_slot(template)
        if only:
            pairs += [(name, text) for text in as_texts(values.get(only.name))]
        elif _has_all(template, values):
            pairs.append((name, filled(template, lambda slot: as_text(values[slot.name]))))
    return pairs


def _has_all(template: Template, values: Values) -> bool:
    return all(slot.is_secret or slot.name in values for slot in slots(template))


def _headers(http: Http, values: Values, secrets: Secrets) -> tuple[dict[str, str], dict[str, str]]:
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, source in http.headers.items():
        template = parsed(source)
        if _has_all(template, values):
            text = filled(template, lambda slot: _header_part(slot, values, secrets))
            has_secret = any(slot.is_secret for slot in slots(template))
            (secret if has_secret else plain)[name] = text
    return plain, secret


def _header_part(slot: Slot, values: Values, secrets: Secrets) -> str:
    text = secrets.values[slot.name] if slot.is_secret else as_text(values[slot.name])
    if not (text.isascii() and text.isprintable()):
        raise invalid(f"{slot.name}: a header holds printable ASCII only; leave the rest out")
    return text


def _body(http: Http, values: Values) -> tuple[str, bytes]:
    if http.json_body is not None:
        return "application/json", json.dumps(_json(http.json_body, values), ensure_ascii=False).encode()
    if http.form is not None:
        return "application/x-www-form-urlencoded", urlencode(_pairs(http.form, values)).encode()
    if http.text is not None:
        text = filled(parsed(http.text), lambda slot: as_text(values[slot.name]))
        return "text/plain; charset=utf-8", text.encode()
    return "", b""


class _Absent:
    """Stands for a value that was not given."""


def _json(part: Any, values: Values) -> Any:
    """Return a part of the body with the values in it; what was not given is left out of objects and lists."""
    if isinstance(part, str):
        template = parsed(part)
        only = only_slot(template)
        if only:
            value = values.get(only.name, _Absent())
            return list(value) if isinstance(value, tuple) else value
        return filled(template, lambda slot: as_text(values[slot.name]))
    if isinstance(part, list):
        items = [_json(item, values) for item in cast("list[Any]", part)]
        return [item for item in items if not isinstance(item, _Absent)]
    if isinstance(part, dict):
        found = {key: _json(item, values) for key, item in cast("dict[str, Any]", part).items()}
        return {key: item for key, item in found.items() if not isinstance(item, _Absent)}
    return part
