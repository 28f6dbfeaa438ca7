"""A tool as a TOML file declares it: one command or one HTTP request, and its arguments."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, StrictBool, StrictFloat, StrictInt

from orga.workflows.types.record import CheckedInput, replace_fields
from orga.workflows.types.tool_calls.sandbox import Sandbox
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions

ArgumentType = Literal[
    "string", "integer", "number", "boolean", "enum", "port", "url", "path", "ip_address", "cidr", "hostname",
    "scope_target", "duration", "regex", "array",
]  # fmt: skip

Number = StrictInt | StrictFloat


class Argument(CheckedInput):
    """`[arguments.NAME]`. Which keys a type knows beside the first four is said where the type is (`kinds.py`)."""

    type: ArgumentType
    description: str = ""
    required: StrictBool | None = None
    """None: required unless there is a default."""
    default: Any = None
    allowed: tuple[Any, ...] | None = None
    """The only values there are."""
    pattern: str | None = None
    """RE2; the whole value has to match."""
    min: Number | None = None
    """Of a number; of a text its characters, of an array its items, of a duration its seconds."""
    max: Number | None = None
    schemes: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    """Networks and hosts that a target has to be in: `10.0.0.0/8`, `example.org`, `*.example.org`."""
    must_exist: StrictBool = False
    multiline: StrictBool = False
    """Line breaks and tabs are let through."""
    allow_dash: StrictBool = False
    """A value may begin with a dash: the author has made sure that the program takes it for no flag."""
    items: "Argument | None" = Field(default=None)

    def without_default(self) -> Self:
        """Return the argument with nothing to fall back on."""
        return replace_fields(self, {"default": None})

    def without_values(self) -> Self:
        """Return the argument that takes any value of its type, and has none of its own."""
        return replace_fields(self, {"allowed": None, "default": None})

    def without_existence(self) -> Self:
        """Return the argument whose path need not exist."""
        return replace_fields(self, {"must_exist": False})

    @property
    def is_required(self) -> bool:
        """Whether a call has to give it."""
        return self.default is None if self.required is None else self.required

    @property
    def may_be_missing(self) -> bool:
        """Whether a call may leave it without any value."""
        return not self.is_required and self.default is None


@dataclass(frozen=True)
class Flaw:
    """One of them; `key` is where in the file."""

    key: tuple[str, ...]
    problem: str
    remedy: str


ArgumentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Json = dict[str, Any] | list[Any]


class ArgvPart(CheckedInput):
    """Elements that stand or are left out together; a bare text of a manifest is a part of one."""

    when: str = ""
    """The argument that has to have a value; a boolean has to be true. Empty: always."""
    argv: tuple[str, ...] = Field(min_length=1)


def _argv_part(given: Any) -> Any:
    if isinstance(given, str):
        return {"argv": (given,)}
    if not isinstance(given, dict) or set(cast("dict[str, Any]", given)) != {"when", "argv"}:
        raise ValueError('an element is a text, or { when = "argument", argv = ["--flag", "{argument}"] }')
    return cast("dict[str, Any]", given)


class CommandSection(CheckedInput):
    """`[command]`: a program, started without a shell."""

    argv: tuple[Annotated[ArgvPart, BeforeValidator(_argv_part)], ...]
    """The program, by bare name or absolute path, and its arguments: one text is one element, whatever is put in."""
    stdin: str = ""
    cwd: str = "."
    """Under the root."""
    env: dict[Variable, str] = {}
    env_from: tuple[Variable, ...] = ()
    """Variables of the worker's environment that are passed on; hidden from whatever the program says."""
    retry_codes: tuple[int, ...] = ()
    """Exit codes after which the same call may succeed later."""
    refusal_codes: tuple[int, ...] = ()
    """Exit codes that say: nothing was done. After any other, what an irreversible command did is unknown."""
    sandbox: Sandbox = Sandbox()
    max_output_bytes: int = Field(default=200_000, ge=1_000, le=5_000_000)


class Http(CheckedInput):
    """`[http]`: one request."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: str
    """Values are put into its path and query, encoded; or all of it is one argument of type `url`."""
    query: dict[str, str] = {}
    headers: dict[HeaderName, str] = {}
    """`{secret:VARIABLE}` is a variable of the worker's environment."""
    json_body: Json | None = Field(default=None, alias="json")
    """A text that is one placeholder becomes the value with its JSON type."""
    form: dict[str, str] | None = None
    text: str | None = None
    max_body_bytes: int = Field(default=1_000_000, ge=1_000, le=5_000_000)


class Output(CheckedInput):
    """`[output]`: what becomes of what came back."""

    parser: Literal["text", "json", "lines", "regex"] = "text"
    pattern: str | None = None
    """Of `regex`, RE2: each match is an object of its named groups, or a text where it names none."""
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    """JSON Schema of what the parser makes."""
    strict: StrictBool = False
    """What does not fit the schema is an error, not a warning."""


class Manifest(CheckedInput):
    """The whole file."""

    name: str = Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$")
    description: str = Field(min_length=1, max_length=4_000)
    effect: Effect = "irreversible"
    timeout_s: float = Field(default=30.0, ge=0.1, le=3_600)
    approval: StrictBool = False
    """A person has to say yes to each call, where no policy decides otherwise."""
    verified: StrictBool = False
    tags: tuple[str, ...] = ()
    arguments: dict[ArgumentName, Argument] = {}
    command: CommandSection | None = None
    http: Http | None = None
    output: Output = Output()
    options: ToolOptions = ToolOptions()
    """As `[tools.options.NAME]`, without what stands at the top of a manifest."""
