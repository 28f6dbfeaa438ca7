"""A tool declared in a TOML file: a command or HTTP request, its arguments, its templates, and its output's parser."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt

from orga.activities.adapters.caller_secrets import CallerSecret
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.ports import ToolContext, ToolError
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.json_text import refuse_constant
from orga.workflows.types.record import CheckedInput, replace_fields
from orga.workflows.types.text import compiled_pattern
from orga.workflows.types.tool_calls.sandbox import Sandbox
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions

ArgumentType = Literal[
    "string", "integer", "number", "boolean", "enum", "port", "url", "path", "ip_address", "cidr", "hostname",
    "scope_target", "duration", "regex", "array",
]  # fmt: skip

Number = StrictInt | StrictFloat


class Argument(CheckedInput):
    """`[arguments.NAME]`. All types have the first four keys. `argument_types.py` lists which type has which others."""

    type: ArgumentType
    description: str = ""
    required: StrictBool | None = None
    """True if each call must have the argument. None means: required unless there is a default."""
    default: Any = None
    allowed: tuple[Any, ...] | None = None
    """The only allowed values."""
    pattern: str | None = None
    """An RE2 pattern that the whole value has to match."""
    min: Number | None = None
    """The smallest number, length of a text in characters, number of items, or duration in seconds."""
    max: Number | None = None
    """The largest value, in the unit of `min`."""
    schemes: tuple[str, ...] = ()
    """Schemes that a URL may have. Empty: http and https."""
    scope: tuple[str, ...] = ()
    """Networks and hosts. A target must be in one of them: `10.0.0.0/8`, `example.org`, `*.example.org`."""
    must_exist: StrictBool = False
    multiline: StrictBool = False
    """Allow line breaks and tabs."""
    allow_dash: StrictBool = False
    """Allow values that begin with a dash. The author must make sure that the program does not take them for flags."""
    items: "Argument | None" = Field(default=None)

    def without(self, *fields: Literal["default", "allowed", "must_exist"]) -> Self:
        return replace_fields(self, {name: type(self).model_fields[name].default for name in fields})

    @property
    def is_required(self) -> bool:
        return self.default is None if self.required is None else self.required

    @property
    def may_be_missing(self) -> bool:
        """True if a call can leave the argument without a value."""
        return not self.is_required and self.default is None


@dataclass(frozen=True)
class Flaw:
    """An error in a manifest. `key` is the path of keys to its place in the file."""

    key: tuple[str, ...]
    problem: str
    remedy: str


ArgumentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Json = dict[str, Any] | list[Any]


class ArgvPart(CheckedInput):
    """Elements of `argv` that are used or left out together. A plain text in a manifest is a part with one element."""

    when: str = ""
    """The part is only used if this argument has a value, and not if it is false or an empty list. Empty: always."""
    argv: tuple[str, ...] = Field(min_length=1)


def _argv_part(value: Any) -> Any:
    if isinstance(value, str):
        return {"argv": (value,)}
    if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != {"when", "argv"}:
        raise ValueError('an element is a text, or { when = "argument", argv = ["--flag", "{argument}"] }')
    return cast("dict[str, Any]", value)


class CommandSection(CheckedInput):
    """`[command]`: a program, started without a shell."""

    argv: tuple[Annotated[ArgvPart, BeforeValidator(_argv_part)], ...]
    """The program (bare name or absolute path) and its arguments. No value can split a text into several elements."""
    stdin: str = ""
    cwd: str = "."
    """The folder in which the command runs, relative to the root."""
    env: dict[Variable, str] = {}
    env_from: tuple[Variable, ...] = ()
    """Variables that the program gets from the worker's environment. Their values are hidden in its output."""
    retry_codes: tuple[int, ...] = ()
    """Exit codes that mean: the same call may succeed later."""
    refusal_codes: tuple[int, ...] = ()
    """Exit codes that mean: nothing was done. After any other failure, the effect of the command is unknown."""
    sandbox: Sandbox = Sandbox()
    max_output_bytes: int = Field(default=200_000, ge=1_000, le=5_000_000)


class Http(CheckedInput):
    """`[http]`: one request."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: str
    """The URL. Values in its path and query are encoded. The whole URL can also be one argument of type `url`."""
    query: dict[str, str] = {}
    headers: dict[HeaderName, str] = {}
    """`{secret:VARIABLE}` is a variable of the worker's environment. `{secret:VARIABLE[tenant]}` and
    `{secret:VARIABLE[trusted_context.user]}` are secrets of the run's tenant or user."""
    json_body: Json | None = Field(default=None, alias="json")
    """The body as JSON. A text that is only one placeholder becomes the value with its JSON type."""
    form: dict[str, str] | None = None
    text: str | None = None
    max_body_bytes: int = Field(default=1_000_000, ge=1_000, le=5_000_000)


class Output(CheckedInput):
    """`[output]`: how the output is parsed and checked."""

    parser: Literal["text", "json", "lines", "regex"] = "text"
    pattern: str | None = None
    """The RE2 pattern for `regex`. A match becomes an object of its named groups, or a text if it has none."""
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    """JSON Schema of the parsed output."""
    strict: StrictBool = False
    """Treat output that does not fit the schema as an error. Otherwise it only gets a warning."""


class Manifest(CheckedInput):
    name: str = Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$")
    description: str = Field(min_length=1, max_length=4_000)
    effect: Effect = "irreversible"
    timeout_s: float = Field(default=30.0, ge=0.1, le=3_600)
    approval: StrictBool = False
    """A person has to approve each call, unless a policy decides otherwise."""
    verified: StrictBool = False
    tags: tuple[str, ...] = ()
    arguments: dict[ArgumentName, Argument] = {}
    command: CommandSection | None = None
    http: Http | None = None
    output: Output = Output()
    options: ToolOptions = ToolOptions()
    """The same keys as `[tools.options.NAME]`, except those that a manifest has at its top."""


MAX_MATCHES = 1_000
_NO_OUTPUT = "(no output)"

_TAIL_CHARS = 2_500
"""Characters of the output's end in an error. The activity cuts long errors at the end, which shows what failed."""


def parsed_output(text: str, output: Output) -> str:
    """Return the text for the model: without a parser almost unchanged, else the parsed value as JSON.

    Raise ToolError (BadOutput) if it cannot be parsed, or (OutputMismatch) if it does not fit a strict schema.
    """
    value = _PARSERS[output.parser](text, output)
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    errors = [] if output.json_schema is None else argument_errors(output.json_schema, value)
    if not errors:
        return shown or _NO_OUTPUT
    misfit = f"the output does not fit its schema: {'; '.join(errors)}"
    if output.strict:
        raise ToolError(misfit, kind="OutputMismatch", acted="yes")
    return f"[Warning] {misfit}\n{shown}"


def error_tail(output: str) -> str:
    """Return the text with which an error ends: the end of the program's output."""
    output = output.strip()
    return f". The end of its output:\n{output[-_TAIL_CHARS:]}" if output else ", without output"


def output_pattern(pattern: str) -> Any:
    """Return the compiled RE2 pattern. RE2 matches hostile output in linear time. Raise ValueError if it is invalid."""
    return compiled_pattern(f"(?m){pattern}")


def _parse_json(text: str, output: Output) -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        why = f"the output is no JSON ({error}); it begins with {text[:200]!r}"
        raise ToolError(why, kind="BadOutput", acted="yes") from None


def _parse_matches(text: str, output: Output) -> list[Any]:
    matches = islice(output_pattern(output.pattern or "").finditer(text), MAX_MATCHES)
    return [match.groupdict() or match.group() for match in matches]


_PARSERS: dict[str, Callable[[str, Output], Any]] = {
    "text": lambda text, _: text.rstrip("\n"),
    "json": _parse_json,
    "lines": lambda text, _: text.splitlines(),
    "regex": _parse_matches,
}


# Templates: texts of a manifest with placeholders such as `{name}` or `{secret:VARIABLE}`. `{{` means a brace.

_BRACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
"""Matches an escaped brace, a placeholder with its text as group 1, or a single brace, which is an error."""

_NAME = re.compile(r"(secret:)?([A-Za-z_][A-Za-z0-9_]*)(?(1)(\[(?:tenant|trusted_context(?:\.[^.\s\[\]{}]+)+)\])?|)")


@dataclass(frozen=True)
class TemplatePlaceholder:
    name: str
    is_secret: bool = False
    """True for a secret: the name is a variable of the worker, or a secret by caller such as `VARIABLE[tenant]`."""


Template = tuple[str | TemplatePlaceholder, ...]


@lru_cache(maxsize=1_000)
def parse_template(source: str) -> Template:
    """Return literal texts and placeholders in order. Raise ValueError for a single brace or an invalid name."""
    parts: list[str | TemplatePlaceholder] = []
    text, end = "", 0
    for brace in _BRACE.finditer(source):
        text += source[end : brace.start()]
        end = brace.end()
        if brace[0] in ("{{", "}}"):
            text += brace[0][0]
            continue
        name = None if brace[1] is None else _NAME.fullmatch(brace[1])
        if name is None:
            raise ValueError(f"{brace[0]!r} is no placeholder; write {{name}}, or {{{{ for a brace")
        parts += [text, TemplatePlaceholder(name[2] + (name[3] or ""), bool(name[1]))]
        text = ""
    return tuple(part for part in (*parts, text + source[end:]) if part)


def template_placeholders(template: Template) -> Iterator[TemplatePlaceholder]:
    return (part for part in template if isinstance(part, TemplatePlaceholder))


def only_placeholder(template: Template) -> TemplatePlaceholder | None:
    """Return the placeholder if the template consists only of it, else None."""
    only = template[0] if len(template) == 1 else None
    return only if isinstance(only, TemplatePlaceholder) else None


def fill_template(template: Template, fill: Callable[[TemplatePlaceholder], str]) -> str:
    """Return the text with its placeholders filled. A placeholder within a value is not filled."""
    return "".join(part if isinstance(part, str) else fill(part) for part in template)


def header_secrets(http: Http | None) -> set[str]:
    """Return the names of the secrets in a request's headers. Raise ValueError if a placeholder is broken."""
    names = set[str]()
    for source in http.headers.values() if http else ():
        names |= {part.name for part in template_placeholders(parse_template(source)) if part.is_secret}
    return names


@dataclass(frozen=True)
class ManifestSecrets:
    """The secrets of a manifest, by name. The `repr` shows no value."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    by_caller: Mapping[str, CallerSecret] = field(default_factory=dict[str, CallerSecret])
    """Secrets that depend on the caller. `for_call` looks up their values."""

    @classmethod
    def from_environment(cls, names: Iterable[str], env: Mapping[str, str]) -> "ManifestSecrets":
        """Read the secrets of the worker. Raise ValueError if a variable is not set."""
        wanted = list(names)
        by_caller = {name: secret for name in wanted if (secret := CallerSecret.from_reference(name, env))}
        plain = [name for name in wanted if name not in by_caller]
        if missing := [name for name in plain if not env.get(name)]:
            raise ValueError(f"the environment has no {' and no '.join(missing)}; set it where the worker starts")
        return cls({name: env[name] for name in plain}, by_caller)

    def for_call(self, context: ToolContext) -> "ManifestSecrets":
        """Return the secrets together with the caller's own. Raise ToolError (NoCredentials) if one is missing."""
        own = {name: secret.for_call(context) for name, secret in self.by_caller.items()}
        return ManifestSecrets({**self.values, **own}) if own else self

    @cached_property
    def known_secrets(self) -> KnownSecrets:
        """The values in the form that can hide them in texts."""
        return KnownSecrets.from_values(self.values.values())
