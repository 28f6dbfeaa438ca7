"""Makes a manifest's HTTP request a tool. Values are encoded, so that none can change the rest of the request."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from urllib.parse import quote, unquote, urlencode

from orga.activities.adapters.http import (
    ACCEPTED_ENCODINGS,
    REFUSAL_STATUSES,
    TRANSIENT_STATUSES,
    URL,
    AsyncClient,
    HTTPError,
    InvalidURL,
    Response,
    TimeoutException,
)
from orga.activities.adapters.manifests.argument_types import (
    PathContext,
    Values,
    checked_values,
    invalid_argument_error,
    value_text,
    value_texts,
)
from orga.activities.adapters.manifests.argument_types import normalised_url as checked_url
from orga.activities.adapters.manifests.manifest import Http, Manifest, error_tail, parsed_output
from orga.activities.adapters.manifests.template import (
    ManifestSecrets,
    Template,
    TemplatePlaceholder,
    fill_template,
    only_placeholder,
    parse_template,
    template_placeholders,
)
from orga.activities.adapters.tools.fetch_url import decoded_text
from orga.activities.adapters.tools.guarded_http import (
    PublicBackend,
    bounded_body,
    final_response,
    guarded_client,
    is_same_server,
)
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import Acted, ToolContext, ToolError
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.tool_calls.tools import TIME_LIMIT, ToolOutput, ToolSpec

_SEPARATOR = re.compile(r"[/\\]")
_MAX_DECODINGS = 3
_PLACEHOLDER_MARK = "\0"


@dataclass(frozen=True)
class HttpRequest:
    """A request to send. Its `repr` shows no header."""

    method: str
    url: URL
    headers: Mapping[str, str]
    secret_headers: Mapping[str, str]
    """Headers with a secret. Only the host of `url` gets them."""
    content: bytes
    known_secrets: KnownSecrets
    """The secrets to hide in the answer."""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.url})"


def build_request(http: Http, values: Values, secrets: ManifestSecrets) -> HttpRequest:
    """Return the request. Raise ToolError (InvalidArguments) if a value could lead elsewhere."""
    content_type, content = _request_body(http, values)
    plain, secret = _request_headers(http, values, secrets)
    if content_type and not any(name.lower() == "content-type" for name in (*plain, *secret)):
        plain["content-type"] = content_type
    return HttpRequest(http.method, _request_url(http, values), plain, secret, content, secrets.known_secrets)


def _request_url(http: Http, values: Values) -> URL:
    template = parse_template(http.url)
    whole = only_placeholder(template)
    url = value_text(values[whole.name]) if whole else _url_text(template, values)
    pairs = _filled_pairs(http.query, values)
    if pairs:
        url += ("&" if "?" in url else "?") + urlencode(pairs)
    try:
        return URL(url)
    except InvalidURL as error:
        raise invalid_argument_error(f"the address that they make cannot be used: {error}") from None


def _url_text(template: Template, values: Values) -> str:
    """Return the URL. Only the manifest decides about the host, which is before the first placeholder."""
    path, question, query = _split_at_query(template)
    located = fill_template(path, lambda slot: _path_value(slot, values))
    shape = fill_template(
        path, lambda slot: _PLACEHOLDER_MARK
    )  # encoded values have no slash, so both have the same parts
    for own, part in zip(_path_parts(shape), _path_parts(located), strict=True):
        if _PLACEHOLDER_MARK in own and (part == "" or any(map(_is_dot_segment, _decoded_spellings(part)))):
            raise invalid_argument_error("a part of the URL's path would be empty, `.` or `..`; write another value")
    return located + question + fill_template(query, lambda slot: quote(value_text(values[slot.name]), safe=""))


def _split_at_query(template: Template) -> tuple[Template, str, Template]:
    for index, part in enumerate(template):
        if isinstance(part, str) and "?" in part:
            before, _, after = part.partition("?")
            return (*template[:index], before), "?", (after, *template[index + 1 :])
    return template, "", ()


def _path_parts(url: str) -> list[str]:
    return url.partition("://")[2].split("/")[1:]


def _path_value(slot: TemplatePlaceholder, values: Values) -> str:
    """Return a value for a path. Some servers decode before they split, so `..` is refused in any spelling."""
    value = value_text(values[slot.name])
    if any(_is_dot_segment(part) for reading in _decoded_spellings(value) for part in _SEPARATOR.split(reading)):
        raise invalid_argument_error(f"{slot.name}: `.` and `..` are refused as parts of a path")
    return quote(value, safe="")


def _decoded_spellings(text: str) -> Iterator[str]:
    """Yield the text unchanged, and decoded once and more often, as some servers read it."""
    for _ in range(_MAX_DECODINGS):
        yield text
        text = unquote(text)


def _is_dot_segment(part: str) -> bool:
    """Return whether a part means this folder or the one above. Some servers ignore text after a semicolon."""
    return part.partition(";")[0] in (".", "..")


def _filled_pairs(templates: Mapping[str, str], values: Values) -> list[tuple[str, str]]:
    """Return names with values. A name without a value is left out, and a list repeats its name."""
    pairs: list[tuple[str, str]] = []
    for name, source in templates.items():
        template = parse_template(source)
        only = only_placeholder(template)
        if only:
            pairs += [(name, text) for text in value_texts(values.get(only.name))]
        elif _has_all(template, values):
            pairs.append((name, fill_template(template, lambda slot: value_text(values[slot.name]))))
    return pairs


def _has_all(template: Template, values: Values) -> bool:
    return all(slot.is_secret or slot.name in values for slot in template_placeholders(template))


def _request_headers(http: Http, values: Values, secrets: ManifestSecrets) -> tuple[dict[str, str], dict[str, str]]:
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, source in http.headers.items():
        template = parse_template(source)
        if _has_all(template, values):
            text = fill_template(template, lambda slot: _header_part(slot, values, secrets))
            has_secret = any(slot.is_secret for slot in template_placeholders(template))
            (secret if has_secret else plain)[name] = text
    return plain, secret


def _header_part(slot: TemplatePlaceholder, values: Values, secrets: ManifestSecrets) -> str:
    text = secrets.values[slot.name] if slot.is_secret else value_text(values[slot.name])
    if not (text.isascii() and text.isprintable()):
        raise invalid_argument_error(f"{slot.name}: a header holds printable ASCII only; leave the rest out")
    return text


def _request_body(http: Http, values: Values) -> tuple[str, bytes]:
    if http.json_body is not None:
        return "application/json", json.dumps(_filled_json(http.json_body, values), ensure_ascii=False).encode()
    if http.form is not None:
        return "application/x-www-form-urlencoded", urlencode(_filled_pairs(http.form, values)).encode()
    if http.text is not None:
        text = fill_template(parse_template(http.text), lambda slot: value_text(values[slot.name]))
        return "text/plain; charset=utf-8", text.encode()
    return "", b""


class _MissingValue:
    """Marks a value that was not given."""


def _filled_json(part: Any, values: Values) -> Any:
    """Return a part of the body with its values. Missing values are left out of objects and lists."""
    if isinstance(part, str):
        template = parse_template(part)
        only = only_placeholder(template)
        if only:
            value = values.get(only.name, _MissingValue())
            return list(value) if isinstance(value, tuple) else value
        return fill_template(template, lambda slot: value_text(values[slot.name]))
    if isinstance(part, list):
        items = [_filled_json(item, values) for item in cast("list[Any]", part)]
        return [item for item in items if not isinstance(item, _MissingValue)]
    if isinstance(part, dict):
        found = {key: _filled_json(item, values) for key, item in cast("dict[str, Any]", part).items()}
        return {key: item for key, item in found.items() if not isinstance(item, _MissingValue)}
    return part


_SAFE_METHODS = ("GET", "HEAD")


class HttpTool:
    """Sends a manifest's request with the arguments of a call, but only to public addresses and allowed hosts."""

    def __init__(
        self, manifest: Manifest, spec: ToolSpec, root: FileRoot, secrets: ManifestSecrets, network: PublicBackend
    ) -> None:
        assert manifest.http is not None
        self._manifest = manifest
        self._http = manifest.http
        self.spec = spec
        self._ground = PathContext(root)
        self._secrets = secrets
        self._backend = network

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the parsed body.

        Raises:
            ToolError: Kind InvalidArguments, NoCredentials, AddressRefused, Http404 and similar, ConnectionFailed,
                TimeLimit, BadOutput or OutputMismatch. It states if the request may have had its effect.
        """
        values = await asyncio.to_thread(checked_values, arguments, self._manifest.arguments, self._ground)
        secrets = await asyncio.to_thread(self._secrets.for_call, context)
        request = build_request(self._http, values, secrets)
        context.heartbeat(f"{request.method} {request.url.host}")
        try:
            return ToolOutput(content=request.known_secrets.redact(await self._answer(request, context)))
        except ToolError as error:
            raise request.known_secrets.redact_error(error) from None

    async def _answer(self, request: HttpRequest, context: ToolContext) -> str:
        limit_s, host, way = self._manifest.timeout_s, request.url.host, _RequestProgress()
        try:
            async with asyncio.timeout(limit_s), guarded_client(self._backend) as client:
                client.timeout = limit_s
                return await self._read(client, request, context, way)
        except ToolError as error:
            if way.asked > 1 and error.acted == "no":  # the server that redirected it may have carried it out
                error.acted = "maybe"
            raise
        except (TimeoutError, TimeoutException):
            if not way.has_begun:
                raise _connect_error(f"{host}: no connection within {limit_s:g} s", "no") from None
            why = f"{host}: no full answer within {limit_s:g} s{way.last_words}"
            raise ToolError(why, kind=TIME_LIMIT, retryable=True) from None
        except HTTPError as error:
            why = f"{host}: {str(error) or type(error).__name__}"
            raise _connect_error(why, "maybe" if way.has_begun else "no") from None

    async def _read(
        self, client: AsyncClient, request: HttpRequest, context: ToolContext, way: "_RequestProgress"
    ) -> str:
        """Follow redirects of requests that change nothing. Each new address is checked when it is connected to."""

        def sent(url: URL) -> AbstractAsyncContextManager[Response]:
            way.asked += 1
            headers = self._headers(request, url, context)
            traced = {"trace": way.note}
            return client.stream(request.method, url, headers=headers, content=request.content, extensions=traced)

        async with final_response(request.url, sent, partial(self._redirect_url, request)) as response:
            way.last_words = f", after the status {response.status_code} {response.reason_phrase}".rstrip()
            return await self._read_text(response, request.known_secrets)

    def _redirect_url(self, request: HttpRequest, url: URL, location: str) -> URL:
        if request.method not in _SAFE_METHODS:
            why = f"{url.host} redirects a {request.method}, which is not sent twice; tell the operator"
            raise ToolError(why, kind="Redirected", acted="maybe")
        try:
            return URL(checked_url(str(url.join(location).copy_with(fragment=None))))
        except (ValueError, InvalidURL) as error:
            why = f"{url.host} redirects to something else: it {error}"
            raise ToolError(why, kind="Redirected", acted="maybe") from None

    def _headers(self, request: HttpRequest, url: URL, context: ToolContext) -> dict[str, str]:
        headers = {"user-agent": "orga/0.1", "accept-encoding": ACCEPTED_ENCODINGS}
        if request.method not in _SAFE_METHODS:
            headers["idempotency-key"] = context.idempotency_key
        if context.is_deferred:
            headers["orga-run"] = quote(context.workflow_id)
        own = {**request.headers, **(request.secret_headers if is_same_server(url, request.url) else {})}
        return headers | {name.lower(): value for name, value in own.items()}

    async def _read_text(self, response: Response, known_secrets: KnownSecrets) -> str:
        acted = _acted_by_status(response)
        try:
            body, is_cut = await bounded_body(response, self._http.max_body_bytes)
        except ToolError as error:
            if not response.is_success:  # the status is enough
                raise _status_error(response, acted, f", and its body cannot be read: {error}") from None
            error.acted = acted
            raise
        except HTTPError as error:
            if not response.is_success and not isinstance(error, TimeoutException):
                raise _status_error(response, "maybe", f", and broke off: {error}") from None
            raise
        decoded = await asyncio.to_thread(decoded_text, body, response.charset_encoding)
        text = known_secrets.redact(decoded, is_cut=is_cut)
        if not response.is_success:
            raise _status_error(response, acted, error_tail(text))
        output = self._manifest.output
        if is_cut and output.parser != "text":
            why = "the answer is longer than max_body_bytes, so it cannot be parsed"
            raise ToolError(why, kind="BadOutput", acted=acted)
        cut = f"\n[cut after {self._http.max_body_bytes:,} bytes]" if is_cut else ""
        return await asyncio.to_thread(parsed_output, text, output) + cut


class _RequestProgress:
    """The progress of a request through all its redirects."""

    def __init__(self) -> None:
        self.asked = 0
        self.has_begun = False
        """True after a part of the request was sent. Before that, no server can have done anything."""
        self.last_words = ""
        """The beginning of an answer."""

    async def note(self, event: str, info: Mapping[str, Any]) -> None:
        self.has_begun = self.has_begun or event.endswith(".send_request_headers.started")


def _connect_error(why: str, acted: Acted) -> ToolError:
    return ToolError(why, kind="ConnectionFailed", retryable=True, acted=acted)


def _status_error(response: Response, acted: Acted, detail: str) -> ToolError:
    status = response.status_code
    why = f"{response.url.host} answered {status} {response.reason_phrase}{detail}"
    return ToolError(why, kind=f"Http{status}", retryable=status in TRANSIENT_STATUSES, acted=acted)


def _acted_by_status(response: Response) -> Acted:
    if response.is_success:
        return "yes"
    return "no" if response.status_code in REFUSAL_STATUSES else "maybe"
