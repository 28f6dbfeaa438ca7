"""Declares the routes of the interface. An `ApiRoute` has the role, the parameters and the answer of one route.

A route takes its parameters as one checked model: the query of a GET, the JSON body of a POST. The run in a path
`/runs/{id}/…` is looked up first. So for all routes, a run of another tenant does not exist.
"""

import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast, get_args, get_type_hints
from urllib.parse import unquote
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription

from orga.client.config.file import NO_FILE
from orga.client.connect import Connection
from orga.client.console.caches import Caches
from orga.client.console.doors import Doors, Role, Visitor, visitor_of
from orga.client.console.problems import Problem, invalid, refused
from orga.client.errors import NotAnAgent, RunNotFound
from orga.client.runs.agents import AgentHandle
from orga.workflows.types.json_text import as_object, refuse_constant
from orga.workflows.types.names import RUN_WORKFLOWS, TENANT
from orga.workflows.types.record import CheckedInput, validation_problems

if TYPE_CHECKING:
    from orga.workflows.types.goals.goal_input import GoalInput
    from orga.workflows.types.input import AgentInput
    from orga.workflows.types.sessions.session_input import SessionInput

API = "/api/v1"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Adapter:
    """A protocol of other front ends, served by the console after its doors."""

    name: Literal["agui", "mcp", "responses"]
    routes: tuple[BaseRoute, ...]
    error_forms: Mapping[str, Callable[[Problem], Response]] = field(default_factory=dict[str, Any])
    """By the beginning of the path: the protocol's own form of problems, if it has one."""
    media_paths: tuple[str, ...] = ()
    """Beginnings of the paths whose bodies may be longer, because they may contain pictures and documents."""


@dataclass(frozen=True)
class Console:
    """The state that all requests share."""

    connection: Connection
    doors: Doors
    """They decide who may enter, and who may do what."""
    signing_key_file: Path | None = None
    """The private key that signs exported journals."""
    adapters: tuple[Adapter, ...] = ()
    adapter_streams: Counter[str] = field(default_factory=Counter[str])
    """Open streams of adapters, by the visitor's name."""
    caches: Caches = field(default_factory=Caches)
    config_file: Path = NO_FILE
    """The configuration that the console was started with."""
    check: Callable[["AgentInput | GoalInput | SessionInput"], None] = lambda _given: None
    """Raises InvalidInput for the input of a run that no worker of this console's configuration could carry out."""

    @property
    def client(self) -> Client:
        return self.connection.client


def console_of(request: Request) -> Console:
    return cast("Console", request.app.state.console)


class NoParameters(CheckedInput):
    """The parameters of a route that has none."""


Flag = Annotated[bool, BeforeValidator(lambda given: given == "" or given)]
"""A parameter such as `?download`, which needs no value."""


@dataclass(frozen=True)
class Call(Generic[M]):
    """A request that passed the doors, with its checked parameters."""

    console: Console
    visitor: Visitor
    given: M
    request: Request
    run: WorkflowExecutionDescription | None = None
    """The run in the path, if there is one."""

    @property
    def client(self) -> Client:
        return self.console.client

    def path(self, name: str) -> str:
        return unquote(self.request.path_params[name])

    @property
    def run_id(self) -> str:
        return self.path("id")

    @property
    def described(self) -> WorkflowExecutionDescription:
        """The run in the path, as the server describes it."""
        if self.run is None:
            raise TypeError("the route names no run")
        return self.run


T = TypeVar("T")


class ListOf(BaseModel, Generic[T]):
    """A part of a list. The parameter `next` asks for the next part. It is null at the end."""

    items: Sequence[T]
    next: str | None


Answer = Response | BaseModel | Mapping[str, Any]
"""A response, or the value whose JSON becomes the response, with the status of the route."""

AnswerSchema = type[BaseModel] | Mapping[str, Any] | None


@dataclass(frozen=True)
class ApiRoute(Generic[M]):
    """One route of the interface."""

    method: Literal["GET", "POST", "PUT"]
    path: str
    """Below `/api/v1`, such as `/runs/{id}/timeline`."""
    answer: Callable[[Call[M]], Awaitable[Answer]]
    takes: type[M]
    """The parameters: the query of a GET, the body of a POST."""
    summary: str
    """One line for the OpenAPI document."""
    answers: AnswerSchema = None
    """The model or JSON Schema of the answer. None if the answer is no JSON object."""
    role: Role = "viewer"
    """The role that it needs. A kind of action may need a higher role."""
    media_type: str = "application/json"
    status: int = 200
    more_statuses: Sequence[int] = ()
    """Statuses in addition to `status` and to those that every route may have."""
    is_start: bool = False
    """True if it starts runs, which the doors limit."""
    is_write: bool = True
    """False for a POST that only computes. A GET never writes."""
    by_kind: Mapping[str, type[M]] | None = None
    """The models of the body by its `kind`, if there are several. `takes` is then their base class."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Request headers that it reads, each with its meaning."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_of_run(self) -> bool:
        return self.path.startswith("/runs/{id}")

    async def respond(self, request: Request) -> Response:
        visitor, console = visitor_of(request), console_of(request)
        is_write = self.is_write and self.method != "GET"
        console.doors.require(visitor, self.role, is_write=is_write)
        if is_write:
            console.doors.count_write(visitor, is_start=self.is_start)
        given = await self._read(request)
        run = await visible_run(console.client, visitor, unquote(request.path_params["id"])) if self.is_of_run else None
        answer = await self.answer(Call(console, visitor, given, request, run))
        return answer if isinstance(answer, Response) else json_response(answer, self.status)

    async def _read(self, request: Request) -> M:
        query = query_of(request)
        if self.method == "GET":
            return checked(self.takes, query)
        if query:
            errors = [{"where": key, "detail": "unknown key"} for key in query]
            raise Problem(422, "a request that writes has no query. Give everything in its body", errors=errors)
        body = await json_body(request)
        _refuse_invalid_text(body)
        return checked(self.takes if self.by_kind is None else _model_by_kind(body, self.by_kind), body)


Handler = Callable[[Call[M]], Awaitable[Answer]]


class Routes(list[ApiRoute[Any]]):
    """The routes of a module. Its methods decorate their handlers.

    The annotations of a handler name the model of its parameters, and the model of its answer if there is one. Its
    docstring is the summary.
    """

    def get(self, path: str, answers: AnswerSchema = None, **more: Any) -> Callable[[Handler[M]], Handler[M]]:
        return self._add("GET", path, answers, more)

    def post(self, path: str, answers: AnswerSchema = None, **more: Any) -> Callable[[Handler[M]], Handler[M]]:
        return self._add("POST", path, answers, more)

    def put(self, path: str, answers: AnswerSchema = None, **more: Any) -> Callable[[Handler[M]], Handler[M]]:
        return self._add("PUT", path, answers, more)

    def _add(
        self, method: Literal["GET", "POST", "PUT"], path: str, answers: AnswerSchema, more: Mapping[str, Any]
    ) -> Callable[[Handler[M]], Handler[M]]:
        def add(handler: Handler[M]) -> Handler[M]:
            hints = get_type_hints(handler)
            answered = hints.pop("return")
            [call] = hints.values()
            [takes] = get_args(call)
            model = answered if isinstance(answered, type) and issubclass(answered, BaseModel) else None
            summary = inspect.getdoc(handler) or ""
            self.append(ApiRoute(method, path, handler, takes, summary, model if answers is None else answers, **more))
            return handler

        return add


def endpoints(routes: Sequence[ApiRoute[Any]]) -> list[Route]:
    """Return one endpoint for each path. It takes the methods of all routes with that path."""
    by_path: dict[str, dict[str, ApiRoute[Any]]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    return [_endpoint(path, by_method) for path, by_method in by_path.items()]


def _endpoint(path: str, by_method: Mapping[str, ApiRoute[Any]]) -> Route:
    async def respond(request: Request) -> Response:
        return await by_method["GET" if request.method == "HEAD" else request.method].respond(request)

    return Route(path, respond, methods=[*by_method])


def json_response(answer: BaseModel | Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """Return the JSON of an answer. Times are written in UTC with `Z`."""
    return JSONResponse(plain(answer), status, headers=headers)


def plain(value: Any) -> Any:
    """Return a value as plain JSON. NaN and infinity, which JSON lacks, become null."""
    return to_jsonable_python(value, inf_nan_mode="null", fallback=str)


def query_of(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key in found:
            raise Problem(422, f"{key}: is given twice. Give it once", errors=[{"where": key, "detail": "given twice"}])
        found[key] = value
    return found


async def json_body(request: Request) -> Any:
    body = await request.body()
    try:
        return json.loads(body, parse_constant=refuse_constant) if body else {}
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"body: is no JSON ({str(error)[:100]}). Send one JSON object") from None


def _refuse_invalid_text(given: Any) -> None:
    """Raise Problem for half a character (a surrogate), which JSON can contain and UTF-8 cannot encode."""
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise refused(_invalid_text_key(given) or "body", "must be valid Unicode") from None
    except (ValueError, RecursionError):
        raise refused("body", "must not be nested too deeply") from None


def _invalid_text_key(value: Any, key: str = "") -> str:
    """Return the innermost key whose text is not valid Unicode, or ""."""
    if isinstance(value, str):
        has_surrogate = any("\ud800" <= character <= "\udfff" for character in value)
        return key if has_surrogate else ""
    keyed_values = list[tuple[str, Any]]()
    if isinstance(value, dict):
        keyed_values = [*cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        keyed_values = [(key, each) for each in cast("list[Any]", value)]
    invalid_keys = (_invalid_text_key(each, name) for name, each in keyed_values)
    return next(filter(None, invalid_keys), "")


def checked(kind: type[M], given: Any) -> M:
    """Return the parameters as a checked model. Raise Problem with all bad keys."""
    if not isinstance(given, dict):
        raise Problem(422, "body: must be a JSON object", errors=[{"where": "body", "detail": "must be an object"}])
    try:
        return kind.model_validate(given, extra="forbid")
    except ValidationError as error:
        raise invalid(validation_problems(error, kind)) from None


def _model_by_kind(given: Any, by_kind: Mapping[str, type[M]]) -> type[M]:
    kind = as_object(given).get("kind")
    if isinstance(kind, str) and kind in by_kind:
        return by_kind[kind]
    raise invalid([f"kind: must be one of {', '.join(by_kind)}"])


def derived_id(*parts: str) -> str:
    """Return an id that depends only on these parts. Other parts have another id."""
    return str(uuid5(NAMESPACE_URL, json.dumps(parts)))


async def visible_run(client: Client, visitor: Visitor, run_id: str) -> WorkflowExecutionDescription:
    """Return a run. Raise RunNotFound for a run of another tenant, too."""
    described = await AgentHandle(client, run_id).describe()
    if not may_see(visitor, described):
        raise RunNotFound(run_id)
    if described.workflow_type not in RUN_WORKFLOWS:
        raise NotAnAgent(run_id, described.workflow_type)
    return described


def may_see(visitor: Visitor, run: WorkflowExecution) -> bool:
    """Return whether a run exists for a visitor. Every route, list, count and stream asks this."""
    return visitor.tenants is None or run.typed_search_attributes.get(TENANT) in visitor.tenants
