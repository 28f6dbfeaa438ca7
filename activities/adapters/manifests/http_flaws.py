"""What is wrong with the request of a manifest: above all, a host that a value could change."""

import json
import re
from collections.abc import Iterator

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.manifests.flaw import Flaw
from orga.activities.adapters.manifests.manifest import Http
from orga.activities.adapters.manifests.network_values import url
from orga.activities.adapters.manifests.secrets import header_variables
from orga.activities.adapters.manifests.template import filled, only_slot, parsed

_OURS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
_AUTHORITY = re.compile(r"https?://[^/?#\\]+")


def http_flaws(http: Http) -> Iterator[Flaw]:
    """Yield every one of them."""
    try:
        yield from _in_url(http)
        yield from _in_headers(http)
    except ValueError:
        pass  # a broken placeholder is told where placeholders are looked at
    bodies = [key for key in ("json_body", "form", "text") if getattr(http, key) is not None]
    if len(bodies) > 1:
        yield Flaw(("http",), "a request has one body", "keep one of json, form and text")
    if bodies and http.method in ("GET", "HEAD"):
        yield Flaw(("http", "method"), f"{http.method} has no body", 'set method = "POST"')
    try:
        json.dumps(http.json_body)
    except (TypeError, ValueError) as error:
        yield Flaw(("http", "json"), f"is no JSON: {error}", "write dates as texts")


def _in_url(http: Http) -> Iterator[Flaw]:
    template, key = parsed(http.url), ("http", "url")
    if only_slot(template):
        if header_variables(http):
            yield Flaw(key, "the model would choose who is told the secrets", "write the host into the manifest")
        return
    first = template[0] if template and isinstance(template[0], str) else ""
    authority = _AUTHORITY.match(first)
    if authority is None or (authority.end() == len(first) and len(template) > 1):
        yield Flaw(key, "a value could change scheme or host", "write both out, and a slash before the first {...}")
        return
    shape = filled(template, lambda slot: "x")
    try:
        url(shape)
    except ValueError as error:
        yield Flaw(key, str(error), "write an absolute URL")
        return
    if "#" in shape:
        yield Flaw(key, "what follows # is never sent", "remove it")
    if header_variables(http) and not shape.startswith("https://") and not is_loopback(shape):
        yield Flaw(key, "secrets would be sent in the clear", "begin it with https://")


def _in_headers(http: Http) -> Iterator[Flaw]:
    for name, source in http.headers.items():
        if name.lower() in _OURS:
            yield Flaw(("http", "headers", name), f"{name} is set by the client", "remove it")
        if any(isinstance(part, str) and not (part.isascii() and part.isprintable()) for part in parsed(source)):
            yield Flaw(("http", "headers", name), "a header holds printable ASCII only", "remove the rest")
