"""Turns errors into problems (RFC 9457), which show what is wrong and what to do."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from orga.client.errors import (
    NoAnswer,
    NotAnAgent,
    OrgaError,
    PastRefused,
    Refused,
    RunEnded,
    RunNotFound,
    ScheduleNotFound,
    ServerLost,
    ServerUnavailable,
    TooLong,
    UnreadableRun,
)
from orga.client.history.chain import NoSuchIteration
from orga.client.journal.timeline_reader import NoRecord, NoText
from orga.workflows.types.record import InvalidInput

MEDIA_TYPE = "application/problem+json"

STATUS_BY_ERROR: tuple[tuple[type[Exception], int], ...] = (
    (RunNotFound, 404),
    (ScheduleNotFound, 404),
    (NotAnAgent, 404),
    (RunEnded, 409),
    (TooLong, 422),
    (UnreadableRun, 422),
    (Refused, 409),
    (NoSuchIteration, 422),
    (PastRefused, 409),
    (NoRecord, 404),
    (NoText, 404),
    (NoAnswer, 503),
    (ServerLost, 503),
    (ServerUnavailable, 503),
    (OrgaError, 502),
)
"""The HTTP status of each error of the client. The first class that fits counts."""


class Problem(Exception):
    """A request that is refused."""

    def __init__(
        self, status: int, detail: str, *, errors: Sequence[Mapping[str, str]] = (), retry_after_s: int | None = None
    ) -> None:
        """`detail` is one line for people. `errors` has a `{"where", "detail"}` for each bad key."""
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, errors
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


def refused(where: str, detail: str, status: int = 422) -> Problem:
    """Return the problem for one key, or one header."""
    return Problem(status, f"{where}: {detail}", errors=[{"where": where, "detail": detail}])


def invalid(problems: Sequence[str]) -> Problem:
    """Return the problem for lines of `key: what is wrong`."""
    return Problem(422, "; ".join(problems), errors=[_where_and_detail(line) for line in problems])


_PLACE = re.compile(r"(?P<key>[^\s:;'\"]+)(?P<value> '[^']*')?: ")
"""The beginning of a problem: its key, and perhaps the key's value."""


def _where_and_detail(line: str) -> dict[str, str]:
    place = _PLACE.match(line)
    if place is None:
        return {"where": "input", "detail": line}
    after_key = line.removeprefix(place["key"])  # `: what is wrong`, or ` 'value': what is wrong`
    return {"where": place["key"], "detail": after_key.removeprefix(": ").lstrip()}


_REMEDIES: tuple[tuple[str, str], ...] = (
    ("`orga list` shows the ids", "the list of runs shows the ids"),
    ("`orga schedule list` shows the ids", "the list of schedules shows the ids"),
    ("`orga journal[^`]*` shows", "its journal shows"),
    ("give the fork a --task", "give the fork a `task`"),
    ("for the fork, with --set", "for the fork, in `changes`"),
    ("with --steer", "in `steer`"),
)
"""Patterns of remedies that name a command, each with the remedy that the console has instead."""


def error_text(error: Exception) -> str:
    """Return the text of an error, with a remedy that the console has."""
    text = str(error)
    for command, remedy in _REMEDIES:
        text = re.sub(command, remedy, text)
    return text


def _problem_json(problem: Problem) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.errors:
        body["errors"] = [dict(error) for error in problem.errors]
    return JSONResponse(body, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def problem_answer(request: Request, problem: Problem) -> Response:
    """Return the problem in the form of the front end at this address, as a page for a browser, or else as JSON."""
    for path_prefix, form in request.app.state.error_forms.items():
        if request.scope["path"].startswith(path_prefix):
            return form(problem)
    is_for_browser = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    return _problem_page(problem) if is_for_browser else _problem_json(problem)


def _problem_page(problem: Problem) -> Response:
    title = HTTPStatus(problem.status).phrase
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title} · orga</title><main><h1>{title}</h1><p>{escape(problem.detail)}</p></main></html>"
    )
    return HTMLResponse(html, problem.status, headers=problem.headers)


_HTTP_DETAILS = {
    404: "there is nothing at this address. GET /api/v1/openapi.json lists the interface",
    405: "this address does not take this method. The header Allow lists those that it takes",
}


def _http_problem(error: HTTPException) -> Problem:
    problem = Problem(error.status_code, _HTTP_DETAILS.get(error.status_code, error.detail))
    problem.headers |= dict(error.headers or {})
    return problem


async def handle_problem(request: Request, error: Exception) -> Response:
    """Return the answer for an error of a route."""
    return problem_answer(request, _problem_of(error))


def _problem_of(error: Exception) -> Problem:
    """Return the problem to show for an error. The text of an unknown error is not shown."""
    match error:
        case Problem():
            return error
        case InvalidInput():
            return invalid(error.problems)
        case HTTPException():
            return _http_problem(error)
        case _:
            status = next((status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)), None)
    if status is None:
        return Problem(500, "the console has a defect; its log has the cause")
    return Problem(status, error_text(error))
