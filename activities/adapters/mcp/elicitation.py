"""A server's requests for input from people, and the answers that it gets."""

import re
from collections.abc import Mapping
from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, InputResponses

from orga.activities.adapters.mcp.content import plain_line
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.json_text import as_object, as_objects, as_text, inner_values
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.elicitation import AskedInput, AskedInputs, FormField, GivenInputs

MAX_FIELDS = 20
MAX_LINE_BYTES = 1_000
MAX_BYTES = 100_000
"""Bytes of JSON of a server's requests for one call. The history has them."""

_SECRET = re.compile(
    r"pass(?:word|phrase|code)|secret|api.?key|token|credential|card.?(?:number|no)|\bcv[cv]\b|\bpin\b", re.I
)

_ADDRESS = re.compile(r"https?://\S+")


class UnusableRequest(Exception):
    """A request that no person is asked. The text states the reason."""


def asked_inputs(server: str, result: InputRequiredResult, secrets: KnownSecrets) -> AskedInputs:
    """Return the requests to people. Raise UnusableRequest if the protocol does not allow one."""
    inputs = tuple(_asked(key, request, secrets) for key, request in (result.input_requests or {}).items())
    if sum(max(len(each.fields), 1) for each in inputs) > MAX_FIELDS:
        raise UnusableRequest(f"it asks more than {MAX_FIELDS} things at once")
    asked = AskedInputs(server=server, inputs=inputs, state=result.request_state)
    text = asked.model_dump_json()
    if secrets.redact(text) != text:
        raise UnusableRequest("its state or a name repeats a secret of the worker")
    if len(text) > MAX_BYTES:
        raise UnusableRequest(f"what it asks has more than {MAX_BYTES:,} bytes")
    return asked


def input_responses(given: GivenInputs) -> InputResponses:
    """Return the answers in the form of the protocol."""
    return {
        key: ElicitResult(action="decline") if values is None else ElicitResult(action="accept", content=values or None)
        for key, values in given.answers.items()
    }


def _asked(key: str, request: object, secrets: KnownSecrets) -> AskedInput:
    if not isinstance(request, ElicitRequest):
        raise UnusableRequest("it asks for more than input from a person")
    asked = request.params
    message = _line(asked.message, secrets)
    if not isinstance(asked, ElicitRequestFormParams):
        if not _ADDRESS.fullmatch(asked.url) or _line(asked.url, secrets) != asked.url:
            raise UnusableRequest("it asks to open something that is no web address, or hides what it is")
        return AskedInput(key=key, message=message, url=asked.url)
    schema = asked.requested_schema
    required = inner_values(schema.get("required"))
    properties = as_object(schema.get("properties"))
    fields = tuple(
        _field(name, as_object(each), secrets, is_required=name in required) for name, each in properties.items()
    )
    return AskedInput(key=key, message=message, fields=fields)


def _field(name: str, schema: Mapping[str, Any], secrets: KnownSecrets, *, is_required: bool) -> FormField:
    about = filter(None, (as_text(schema.get("title")) or name, as_text(schema.get("description"))))
    title = _line(": ".join(about), secrets)
    if _SECRET.search(f"{name} {title}"):
        raise UnusableRequest(f"it asks for a secret in a form ({_line(name, secrets)}), which the protocol forbids")
    kind = schema.get("type")
    if kind not in ("string", "number", "integer", "boolean"):
        raise UnusableRequest(f"its form has a field that is no text, number or truth ({_line(name, secrets)})")
    titled = as_objects(schema.get("oneOf"))
    listed: Any = schema.get("enum") or [each.get("const") for each in titled]
    options = tuple(_line(each, secrets) for each in listed if isinstance(each, str))
    if len(options) != len(listed) or options != tuple(dict.fromkeys(each for each in listed)):
        raise UnusableRequest(f"the choices of {_line(name, secrets)} cannot be shown")
    names = inner_values(schema.get("enumNames")) or [each.get("title") for each in titled]
    meanings = [f"{each}: {it}" for each, it in zip(options, map(as_text, names), strict=False) if it not in ("", each)]
    if meanings:
        title = _line(f"{title} ({', '.join(meanings)})", secrets)
    low, high = _LIMITS[kind == "string"]
    limits = {"least": schema.get(low), "most": schema.get(high)}
    found = {key: each for key, each in limits.items() if isinstance(each, int | float)}
    return FormField(name=name, kind=kind, title=title, options=options, is_required=is_required, **found)


_LIMITS = {True: ("minLength", "maxLength"), False: ("minimum", "maximum")}
"""The limits of texts, and of numbers."""


def _line(text: str, secrets: KnownSecrets) -> str:
    return one_line(plain_line(secrets.redact(text), MAX_LINE_BYTES), MAX_LINE_BYTES)
