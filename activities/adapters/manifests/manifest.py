"""A tool as a TOML file declares it: one command or one HTTP request."""

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, StrictBool

from orga.activities.adapters.manifests.argument import Argument
from orga.workflows.types.record import Border
from orga.workflows.types.sandbox import Sandbox
from orga.workflows.types.tools import Effect, ToolOptions

ArgumentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Json = dict[str, Any] | list[Any]


class ArgvPart(Border):
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


class Command(Border):
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


class Http(Border):
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


class Output(Border):
    """`[output]`: what becomes of what came back."""

    parser: Literal["text", "json", "lines", "regex"] = "text"
    pattern: str | None = None
    """Of `regex`, RE2: each match is an object of its named groups, or a text where it names none."""
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    """JSON Schema of what the parser makes."""
    strict: StrictBool = False
    """What does not fit the schema is an error, not a warning."""


class Manifest(Border):
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
    command: Command | None = None
    http: Http | None = None
    output: Output = Output()
    options: ToolOptions = ToolOptions()
    """As `[tools.options.NAME]`, without what stands at the top of a manifest."""
