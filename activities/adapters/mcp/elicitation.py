"""Converts an MCP server's requests for input to questions for people, and the answers back. Refuses unsafe ones."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, repeat
from typing import Any

from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)

from orga.activities.adapters.mcp.content import plain_line
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.json_text import as_object, as_objects, as_text, inner_values
from orga.workflows.types.questions import AskedInput, AskedInputs, FormField, GivenInputs
from orga.workflows.types.text import one_line

MAX_FIELDS = 20
"""Fields of all forms of one call. A request without fields counts as one."""
MAX_LINE_BYTES = 1_000
MAX_BYTES = 100_000
"""Bytes of JSON of all requests of one call. They are written to history."""

DIGEST_CHARS = 32

_SECRET = re.compile(
    r"pass(?:word|phrase|code)|secret|api.?key|token|credential|card.?(?:number|no)|\bcv[cv]\b|\bpin\b", re.I
)

_WARNING = re.compile(r"\b(?:do not|don't|never) (?:enter|give|share|use|provide|include|put)\b[^.;:)]*", re.I)
"""Part of a sentence that warns people not to enter a secret. The secret that it names is not asked for."""

_ADDRESS = re.compile(r"https?://[\w.:\[\]-]+(?:[/?#]\S*)?", re.ASCII)
"""An address whose host hides nothing: no user name before the host, and only ASCII letters in it."""

_MAX_LIMIT = 1e15
"""The largest limit of a field that is kept. JSON can hold numbers that are too large for a field."""


class UnusableRequest(Exception):
    """A request that must not reach a person. The text states the reason."""


@dataclass
class CallInFlight:
    """A call during which the server may ask people something. Only protocols before 2026-07-28 do this.

    An activity does not wait for a person. So it cancels the request. After people have answered, the call is repeated
    if the tool's effect allows that. The server then makes the same request, and gets the answer at once.
    """

    given: GivenInputs
    may_repeat: bool
    """True if the tool's effect allows another attempt of the call."""
    asked: dict[str, ElicitRequest] = field(default_factory=dict[str, ElicitRequest])
    """The requests to people, by digest."""
    unanswered: str = ""
    """The reason if a request could not be passed on to people."""

    def answer(self, params: ElicitRequestParams) -> ElicitResult:
        """Return the answer from an earlier attempt. If there is none, collect the request and cancel it."""
        content = params.model_dump_json(exclude={"meta", "task", "elicitation_id"}, by_alias=True)
        key = sha256(content.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]
        response = input_responses(self.given).get(key)
        if isinstance(response, ElicitResult):
            return response
        if not self.may_repeat:
            self.unanswered = 'The call would be made once more, so the tool\'s options need effect = "idempotent".'
        elif len(content) > MAX_BYTES:
            self.unanswered = f"A request has more than {MAX_BYTES:,} bytes."
        elif len(self.asked) <= MAX_FIELDS:  # collects one more than allowed, so that `asked_inputs` refuses them
            self.asked[key] = ElicitRequest(params=params)
        return ElicitResult(action="cancel")


def asked_inputs(
    server: str, result: InputRequiredResult, secrets: KnownSecrets, given: GivenInputs | None = None
) -> AskedInputs:
    """Return the questions for people, with the earlier answers that the next attempt needs. Raise UnusableRequest."""
    requests = result.input_requests or {}
    inputs = tuple(_asked_input(key, request, secrets) for key, request in requests.items())
    if sum(max(len(item.fields), 1) for item in inputs) > MAX_FIELDS:
        raise UnusableRequest(f"it asks more than {MAX_FIELDS} things at once")
    asked = AskedInputs(
        server=server, inputs=inputs, state=result.request_state, answers=given.answers if given else {}
    )
    text = asked.model_dump_json()
    if secrets.redact(text) != text:
        raise UnusableRequest("its state or a name repeats a secret of the worker")
    if len(text) > MAX_BYTES:
        raise UnusableRequest(f"its requests have more than {MAX_BYTES:,} bytes")
    return asked


def input_responses(given: GivenInputs) -> InputResponses:
    """Return the answers in the form of the protocol."""
    return {
        key: ElicitResult(action="decline") if values is None else ElicitResult(action="accept", content=values or None)
        for key, values in given.answers.items()
    }


def _asked_input(key: str, request: object, secrets: KnownSecrets) -> AskedInput:
    if not isinstance(request, ElicitRequest):
        raise UnusableRequest("it asks for more than input from a person")
    params = request.params
    message = _line(params.message, secrets)
    if not isinstance(params, ElicitRequestFormParams):
        if not _ADDRESS.fullmatch(params.url) or _line(params.url, secrets) != params.url:
            raise UnusableRequest("it asks to open something that is no web address, or hides what it is")
        return AskedInput(key=key, message=message, url=params.url)
    schema = params.requested_schema
    required = inner_values(schema.get("required"))
    properties = as_object(schema.get("properties"))
    fields = tuple(
        _form_field(name, as_object(field), secrets, is_required=name in required) for name, field in properties.items()
    )
    return AskedInput(key=key, message=message, fields=fields)


def _form_field(name: str, schema: Mapping[str, Any], secrets: KnownSecrets, *, is_required: bool) -> FormField:
    texts = filter(None, (as_text(schema.get("title")) or name, as_text(schema.get("description"))))
    title, label = _line(": ".join(texts), secrets), _line(name, secrets)
    if _SECRET.search(_WARNING.sub("", f"{name} {title}")):
        raise UnusableRequest(f"it asks for a secret in a form ({label}), which the protocol forbids")
    kind = "list" if schema.get("type") == "array" else schema.get("type")
    if kind not in ("string", "number", "integer", "boolean", "list"):
        raise UnusableRequest(f"its form has a field that is no text, number, yes/no or list ({label})")
    choices = _choices(kind, schema, label, secrets)
    meanings = [f"{option}: {text}" for option, text in choices.items() if text not in ("", option)]
    if meanings:
        title = _line(f"{title} ({', '.join(meanings)})", secrets)
    form = as_text(schema.get("format"))
    return FormField(
        name=name,
        kind=form if kind == "string" and form in _FORMATS and not choices else kind,
        title=title,
        options=tuple(choices),
        is_required=is_required,
        **_field_limits(kind, schema),
    )


def _choices(kind: str, schema: Mapping[str, Any], label: str, secrets: KnownSecrets) -> dict[str, str]:
    """Return each choice of a field with its title, or "" without one. Raise UnusableRequest if nobody could choose."""
    source = as_object(schema.get("items")) if kind == "list" else schema
    titled = as_objects(source.get("oneOf")) or as_objects(source.get("anyOf"))
    values: Any = source.get("enum") or [choice.get("const") for choice in titled]
    options = [_line(value, secrets) for value in values if isinstance(value, str)]
    can_be_typed = kind != "list" or (options and "," not in "".join(options))  # people type a comma between choices
    # every choice must be a text, must occur once, and must stay unchanged by `_line`
    can_be_shown = len(options) == len(values) and options == list(dict.fromkeys(values))
    if not (can_be_shown and can_be_typed):
        raise UnusableRequest(f"the choices of {label} cannot be shown")
    titles = map(as_text, inner_values(source.get("enumNames")) or [choice.get("title") for choice in titled])
    return dict(zip(options, chain(titles, repeat("")), strict=False))


def _field_limits(kind: str, schema: Mapping[str, Any]) -> dict[str, float]:
    least_key, most_key = _LIMIT_KEYS.get(kind, ("minimum", "maximum"))
    limits = {"least": schema.get(least_key), "most": schema.get(most_key)}
    return {
        name: limit for name, limit in limits.items() if isinstance(limit, int | float) and abs(limit) <= _MAX_LIMIT
    }


_FORMATS = ("email", "uri", "date", "date-time")
"""Formats of a text field that are kinds of their own."""

_LIMIT_KEYS = {"string": ("minLength", "maxLength"), "list": ("minItems", "maxItems")}
"""Keywords of the schema for the limits of a text and of a list. Numbers use `minimum` and `maximum`."""


def _line(text: str, secrets: KnownSecrets) -> str:
    return one_line(plain_line(secrets.redact(text), MAX_LINE_BYTES), MAX_LINE_BYTES)
