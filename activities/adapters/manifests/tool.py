"""Makes a tool from a manifest without flaws. The tool runs the manifest's command, or sends its HTTP request.

No value can split an element of a command. Values in a request are encoded, so that none can change the rest of it.
"""

import asyncio
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote, urlencode

from orga.activities.adapters.caller_secrets import is_by_caller
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
    is_dot_segment,
)
from orga.activities.adapters.manifests.argument_types import (
    PathContext,
    Values,
    checked_values,
    invalid_argument_error,
    is_like_flag,
    normalised_url,
    parameters_schema,
    value_text,
    value_texts,
)
from orga.activities.adapters.manifests.manifest import (
    Argument,
    ArgvPart,
    CommandSection,
    Http,
    Manifest,
    ManifestSecrets,
    Template,
    TemplatePlaceholder,
    error_tail,
    fill_template,
    header_secrets,
    only_placeholder,
    parse_template,
    parsed_output,
    template_placeholders,
)
from orga.activities.adapters.rules import NO_RULES, Rules
from orga.activities.adapters.sandbox.bubblewrap import check_isolation
from orga.activities.adapters.sandbox.limited_command import (
    MAX_ARGV_BYTES,
    CommandResult,
    exceeds_argv_limit,
    run_sandboxed,
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
from orga.activities.ports import Acted, Tool, ToolContext, ToolError
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.tool_calls.tools import TIME_LIMIT, ToolOptions, ToolOutput, ToolSpec

ENDING_GRACE_S = 5.0
"""Seconds that a call gets after its time limit to end the command or request, and to report that."""


def manifest_tool(
    manifest: Manifest, root: Path, env: Mapping[str, str], allow_hosts: Collection[str] = (), rules: Rules = NO_RULES
) -> Tool:
    """Return the tool. Raise ValueError if a variable, the folder or the isolation that it needs is missing."""
    spec, files = manifest_spec(manifest), FileRoot(root, rules)
    if manifest.command is not None:
        secrets = ManifestSecrets.from_environment(manifest.command.env_from, env)
        check_isolation(manifest.command.sandbox.isolation)
        return _CommandTool(spec, manifest, manifest.command, _command_paths(manifest.command, files), secrets)
    assert manifest.http is not None
    secrets = ManifestSecrets.from_environment(sorted(header_secrets(manifest.http)), env)
    return _HttpTool(spec, manifest, manifest.http, PathContext(files), secrets, PublicBackend(allow_hosts))


def _command_paths(command: CommandSection, files: FileRoot) -> PathContext:
    try:
        return PathContext(files, files.locate(command.cwd))
    except ToolError as error:
        raise ValueError(f"command.cwd: {error}") from error


def secret_variables(manifest: Manifest) -> list[str]:
    """Return the variables that certainly hold credentials: those in headers, but not those with a file per caller.

    A variable for a program may hold anything.
    """
    return sorted(name for name in header_secrets(manifest.http) if not is_by_caller(name))


def manifest_spec(manifest: Manifest) -> ToolSpec:
    """Return the definition for models. Defaults stay unset, because every set option is written to history."""
    top_level: dict[str, Any] = {"tags": manifest.tags, "verified": manifest.verified, "approval": manifest.approval}
    set_options = {name: getattr(manifest.options, name) for name in manifest.options.model_fields_set}
    set_options |= {name: value for name, value in top_level.items() if value}
    set_options["timeout_s"] = manifest.timeout_s + ENDING_GRACE_S
    required = [name for name, argument in manifest.arguments.items() if argument.is_required]
    spec = ToolSpec(
        name=manifest.name,
        description=manifest.description,
        parameters=parameters_schema(manifest.arguments),
        effect=manifest.effect,
        options=ToolOptions.model_validate(set_options),
        main_argument=next(iter([*required, *manifest.arguments]), None),
    )
    output = manifest.output
    is_value = output.strict and output.parser == "json"
    spec = spec.with_takes_caller(any(map(is_by_caller, header_secrets(manifest.http))))
    return spec.with_output_schema(output.json_schema if is_value else None)


def _build_argv(command: CommandSection, declared: Mapping[str, Argument], values: Values) -> list[str]:
    """Return the program and its arguments. Raise ToolError (InvalidArguments) for a possible flag or a long argv."""
    _refuse_flags(command, declared, values)
    argv = [element for part in command.argv if _is_included(part, values) for element in _part_elements(part, values)]
    if exceeds_argv_limit(argv):
        raise invalid_argument_error(f"more than {MAX_ARGV_BYTES:,} bytes together; shorten them")
    return argv


def _is_included(part: ArgvPart, values: Values) -> bool:
    if not part.when:
        return True
    value = values.get(part.when)
    return value is not None and value is not False and value != ()


def _part_elements(part: ArgvPart, values: Values) -> list[str]:
    found: list[str] = []
    for template in map(parse_template, part.argv):
        if only := only_placeholder(template):
            found += value_texts(values.get(only.name))
        else:  # no value is a list here, because a manifest with an array within a text has a flaw
            found.append(_filled_text(template, values))
    return found


def _filled_text(template: Template, values: Values) -> str:
    return fill_template(template, lambda slot: value_text(values[slot.name]))


def _refuse_flags(command: CommandSection, declared: Mapping[str, Argument], values: Values) -> None:
    templates = [parse_template(source) for part in command.argv for source in part.argv]
    used = {slot.name for template in templates for slot in template_placeholders(template)}
    for name in sorted(used & values.keys()):
        items = declared[name].items
        may_have_dash = declared[name].allow_dash or (items is not None and items.allow_dash)
        if not may_have_dash and any(is_like_flag(text) for text in value_texts(values[name])):
            raise invalid_argument_error(
                f"{name}: begins with a dash, so the program could take it for a flag; write it without the dash"
            )


@dataclass(eq=False, repr=False)
class _CommandTool:
    spec: ToolSpec
    _manifest: Manifest
    _command: CommandSection
    _paths: PathContext
    _secrets: ManifestSecrets

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the program's parsed output.

        Raises:
            ToolError: Kind InvalidArguments, PathRefused, CommandFailed, TimeLimit, BadOutput or OutputMismatch.
        """
        values = await asyncio.to_thread(checked_values, arguments, self._manifest.arguments, self._paths)
        argv = _build_argv(self._command, self._manifest.arguments, values)
        context.heartbeat(f"running {argv[0]}")
        try:
            finished = await self._run(argv, values, context)
            output = await asyncio.to_thread(self._output_or_failure, argv[0], finished)
            return ToolOutput(content=self._secrets.known_secrets.redact(output))
        except ToolError as error:
            raise self._secrets.known_secrets.redact_error(error) from None

    async def _run(self, argv: list[str], values: Values, context: ToolContext) -> CommandResult:
        stdin = _filled_text(parse_template(self._command.stdin), values)
        call_variables = {"ORGA_IDEMPOTENCY_KEY": context.idempotency_key}
        if context.is_deferred:  # the work ends later, by the update `complete_tool_call` to this run
            call_variables["ORGA_RUN"] = context.workflow_id
        return await run_sandboxed(
            argv,
            cwd=self._folder(),
            env=call_variables | self._command.env | dict(self._secrets.values),
            timeout_s=self._manifest.timeout_s,
            sandbox=self._command.sandbox,
            stdin=stdin.encode(),
            max_output_bytes=self._command.max_output_bytes,
            rules=self._paths.root.rules,
        )

    def _folder(self) -> Path:
        """Return the command's folder. Its path is checked again, because a link may have replaced the folder."""
        located = self._paths.root.locate(str(self._paths.cwd))
        folder = self._paths.root.path / located
        if not folder.is_dir():
            raise ToolError(f"the folder of this tool, {located}, is not there; tell the operator", kind="NotFound")
        return folder

    def _output_or_failure(self, program: str, finished: CommandResult) -> str:
        stdout = self._decoded_output(finished.stdout, is_cut=finished.truncated)
        stderr = self._decoded_output(finished.stderr, is_cut=finished.truncated)
        if finished.exit_code != 0 or finished.timed_out or finished.limit:
            raise self._failure(program, finished, stderr.strip() or stdout)
        output = self._manifest.output
        if finished.truncated and output.parser != "text":
            why = "the output is longer than max_output_bytes, so it cannot be parsed"
            raise ToolError(why, kind="BadOutput", acted="yes")
        cut = f"\n[cut after {self._command.max_output_bytes:,} bytes]" if finished.truncated else ""
        return f"{finished.warning}{parsed_output(stdout, output)}{cut}"

    def _decoded_output(self, output: bytes, *, is_cut: bool) -> str:
        return self._secrets.known_secrets.redact(output.decode(errors="replace"), is_cut=is_cut)

    def _failure(self, program: str, finished: CommandResult, output: str) -> ToolError:
        tail = error_tail(output)
        if finished.timed_out:
            why = f"{program} was stopped after {self._manifest.timeout_s:g} s"
            advice = "; ask for less" if self.spec.effect == "read_only" else ""
            return ToolError(f"{finished.warning}{why}{advice}{tail}", kind=TIME_LIMIT, retryable=True)
        if finished.limit:
            why = f"{program} was stopped by its limit {finished.limit}"
        elif finished.signal:
            why = f"{program} was killed by {finished.signal}"
        else:
            why = f"{program} exited with code {finished.exit_code}"
        return ToolError(
            f"{finished.warning}{why}{tail}",
            kind="CommandFailed",
            retryable=finished.exit_code in self._command.retry_codes,
            acted="no" if finished.exit_code in self._command.refusal_codes else "maybe",
        )


_SEPARATOR = re.compile(r"[/\\]")
_SPELLINGS = 3
"""Spellings of a text that are checked: as it is, decoded once, and decoded twice. Some servers decode repeatedly."""
_PLACEHOLDER_MARK = "\0"


@dataclass(frozen=True)
class _HttpRequest:
    """A request to send. Its `repr` shows no header."""

    method: str
    url: URL
    headers: Mapping[str, str]
    secret_headers: Mapping[str, str]
    """Headers with a secret. After a redirect to another server they are not sent."""
    content: bytes
    known_secrets: KnownSecrets
    """The secrets to hide in the answer."""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.url})"


def build_request(http: Http, values: Values, secrets: ManifestSecrets) -> _HttpRequest:
    """Return the request. Raise ToolError (InvalidArguments) if a value could change the address or a header's form."""
    content_type, content = _request_body(http, values)
    plain, secret = _request_headers(http, values, secrets)
    if content_type and not any(name.lower() == "content-type" for name in (*plain, *secret)):
        plain["content-type"] = content_type
    return _HttpRequest(http.method, _request_url(http, values), plain, secret, content, secrets.known_secrets)


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
        raise invalid_argument_error(f"the URL with these values cannot be used: {error}") from None


def _url_text(template: Template, values: Values) -> str:
    """Return the URL with its values. The host comes before the first placeholder, so only the manifest decides it."""
    path, question, query = _split_at_query(template)
    located = fill_template(path, lambda slot: _path_value(slot, values))
    marked = fill_template(path, lambda slot: _PLACEHOLDER_MARK)
    # An encoded value has no slash, so both paths are split in the same places.
    for marked_part, part in zip(_path_parts(marked), _path_parts(located), strict=True):
        is_misleading = part == "" or any(map(is_dot_segment, _decoded_spellings(part)))
        if _PLACEHOLDER_MARK in marked_part and is_misleading:
            raise invalid_argument_error("a part of the URL's path would be empty, `.` or `..`; write another value")
    return located + question + fill_template(query, lambda slot: quote(value_text(values[slot.name]), safe=""))


def _split_at_query(template: Template) -> tuple[Template, str, Template]:
    """Return the part before the first question mark, the mark or "", and the part after it."""
    for index, part in enumerate(template):
        if isinstance(part, str) and "?" in part:
            before, _, after = part.partition("?")
            return (*template[:index], before), "?", (after, *template[index + 1 :])
    return template, "", ()


def _path_parts(url: str) -> list[str]:
    return url.partition("://")[2].split("/")[1:]


def _path_value(slot: TemplatePlaceholder, values: Values) -> str:
    """Return a value, encoded for a path. Refuse `..` in any spelling, as some servers decode before they split."""
    value = value_text(values[slot.name])
    if any(is_dot_segment(part) for reading in _decoded_spellings(value) for part in _SEPARATOR.split(reading)):
        raise invalid_argument_error(f"{slot.name}: `.` and `..` are refused as parts of a path")
    return quote(value, safe="")


def _decoded_spellings(text: str) -> Iterator[str]:
    for _ in range(_SPELLINGS):
        yield text
        text = unquote(text)


def _filled_pairs(templates: Mapping[str, str], values: Values) -> list[tuple[str, str]]:
    """Return pairs of name and value. A name without a value is left out. A list gives one pair for each item."""
    pairs: list[tuple[str, str]] = []
    for name, source in templates.items():
        template = parse_template(source)
        only = only_placeholder(template)
        if only:
            pairs += [(name, text) for text in value_texts(values.get(only.name))]
        elif _has_all(template, values):
            pairs.append((name, _filled_text(template, values)))
    return pairs


def _has_all(template: Template, values: Values) -> bool:
    return all(slot.is_secret or slot.name in values for slot in template_placeholders(template))


def _request_headers(http: Http, values: Values, secrets: ManifestSecrets) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers without a secret, and those with one. A header whose argument has no value is left out."""
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
    """Return the content type and the body. Both are empty for a request without a body."""
    if http.json_body is not None:
        return "application/json", json.dumps(_filled_json(http.json_body, values), ensure_ascii=False).encode()
    if http.form is not None:
        return "application/x-www-form-urlencoded", urlencode(_filled_pairs(http.form, values)).encode()
    if http.text is not None:
        return "text/plain; charset=utf-8", _filled_text(parse_template(http.text), values).encode()
    return "", b""


_MISSING = object()
"""The value of an argument that was not given."""


def _filled_json(part: Any, values: Values) -> Any:
    """Return a part of the body with its placeholders filled. Objects and lists leave out missing values."""
    if isinstance(part, str):
        template = parse_template(part)
        only = only_placeholder(template)
        if only:
            if only.name not in values:
                return _MISSING
            value = values[only.name]
            return list(value) if isinstance(value, tuple) else value
        return _filled_text(template, values)
    if isinstance(part, list):
        items = [_filled_json(item, values) for item in cast("list[Any]", part)]
        return [item for item in items if item is not _MISSING]
    if isinstance(part, dict):
        found = {key: _filled_json(item, values) for key, item in cast("dict[str, Any]", part).items()}
        return {key: item for key, item in found.items() if item is not _MISSING}
    return part


_SAFE_METHODS = ("GET", "HEAD")


@dataclass(eq=False, repr=False)
class _HttpTool:
    """Sends a manifest's request with the arguments of a call, but only to public addresses and allowed hosts."""

    spec: ToolSpec
    _manifest: Manifest
    _http: Http
    _paths: PathContext
    _secrets: ManifestSecrets
    _backend: PublicBackend

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the parsed body. `acted` of a ToolError states whether the request may have had its effect."""
        values = await asyncio.to_thread(checked_values, arguments, self._manifest.arguments, self._paths)
        secrets = await asyncio.to_thread(self._secrets.for_call, context)
        request = build_request(self._http, values, secrets)
        context.heartbeat(f"{request.method} {request.url.host}")
        try:
            return ToolOutput(content=request.known_secrets.redact(await self._answer(request, context)))
        except ToolError as error:
            raise request.known_secrets.redact_error(error) from None

    async def _answer(self, request: _HttpRequest, context: ToolContext) -> str:
        limit_s, host, progress = self._manifest.timeout_s, request.url.host, _RequestProgress()
        try:
            async with asyncio.timeout(limit_s), guarded_client(self._backend) as client:
                client.timeout = limit_s
                return await self._read(client, request, context, progress)
        except ToolError as error:
            if progress.requests > 1 and error.acted == "no":  # the server that redirected may have carried it out
                error.acted = "maybe"
            raise
        except (TimeoutError, TimeoutException):
            if not progress.has_begun:
                why = f"{host}: no connection within {limit_s:g} s"
                raise ToolError(why, kind="ConnectionFailed", retryable=True, acted="no") from None
            why = f"{host}: no full answer within {limit_s:g} s{progress.answered}"
            raise ToolError(why, kind=TIME_LIMIT, retryable=True) from None
        except HTTPError as error:
            why = f"{host}: {str(error) or type(error).__name__}"
            acted = "maybe" if progress.has_begun else "no"
            raise ToolError(why, kind="ConnectionFailed", retryable=True, acted=acted) from None

    async def _read(
        self, client: AsyncClient, request: _HttpRequest, context: ToolContext, progress: "_RequestProgress"
    ) -> str:
        """Send the request and return the answer. Only GET and HEAD follow redirects. Each new address is checked."""

        def sent(url: URL) -> AbstractAsyncContextManager[Response]:
            progress.requests += 1
            headers = self._headers(request, url, context)
            traced = {"trace": progress.note}
            return client.stream(request.method, url, headers=headers, content=request.content, extensions=traced)

        async with final_response(request.url, sent, partial(self._redirect_url, request)) as response:
            progress.answered = f", after the status {response.status_code} {response.reason_phrase}".rstrip()
            return await self._read_text(response, request.known_secrets)

    def _redirect_url(self, request: _HttpRequest, url: URL, location: str) -> URL:
        if request.method not in _SAFE_METHODS:
            why = f"{url.host} redirects a {request.method}, which is not sent twice; tell the operator"
            raise ToolError(why, kind="Redirected", acted="maybe")
        try:
            return URL(normalised_url(str(url.join(location).copy_with(fragment=None))))
        except (ValueError, InvalidURL) as error:
            why = f"{url.host} redirects to an address that cannot be used: {error}"
            raise ToolError(why, kind="Redirected", acted="maybe") from None

    def _headers(self, request: _HttpRequest, url: URL, context: ToolContext) -> dict[str, str]:
        headers = {"user-agent": "orga/0.1", "accept-encoding": ACCEPTED_ENCODINGS}
        if request.method not in _SAFE_METHODS:
            headers["idempotency-key"] = context.idempotency_key
        if context.is_deferred:
            headers["orga-run"] = quote(context.workflow_id)
        own = {**request.headers, **(request.secret_headers if is_same_server(url, request.url) else {})}
        return headers | {name.lower(): value for name, value in own.items()}

    async def _read_text(self, response: Response, known_secrets: KnownSecrets) -> str:
        acted = _acted(response)
        try:
            body, is_cut = await bounded_body(response, self._http.max_body_bytes)
        except ToolError as error:
            if not response.is_success:  # the status shows the failure, even without the body
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
        self.requests = 0
        self.has_begun = False
        """True after a part of a request was sent. Before that, no server can have done anything."""
        self.answered = ""
        """The end of the text of a later error. It has the status of the answer, or is empty if no answer has begun."""

    async def note(self, event: str, info: Mapping[str, Any]) -> None:
        self.has_begun = self.has_begun or event.endswith(".send_request_headers.started")


def _acted(response: Response) -> Acted:
    """Return whether the request had its effect, as far as the status shows it."""
    if response.is_success:
        return "yes"
    return "no" if response.status_code in REFUSAL_STATUSES else "maybe"


def _status_error(response: Response, acted: Acted, detail: str) -> ToolError:
    status = response.status_code
    why = f"{response.url.host} answered {status} {response.reason_phrase}{detail}"
    return ToolError(why, kind=f"Http{status}", retryable=status in TRANSIENT_STATUSES, acted=acted)
