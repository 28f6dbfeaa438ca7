"""Errors of the console's interface: each names a key, and a remedy that the console has."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from orga.client.console.problems import error_text, handle_problem, invalid
from orga.client.errors import OrgaError, RunEnded, RunNotFound, ScheduleNotFound, UnreadableRun
from orga.workflows.types.record import InvalidInput

INPUTS: dict[str, tuple[list[str], list[tuple[str, str]]]] = {
    "one key": (["task: Field required"], [("task", "Field required")]),
    "two keys": (["config.a: b", "modle: unknown key"], [("config.a", "b"), ("modle", "unknown key")]),
    "a hint with a semicolon and a colon": (
        ["agent: there is no agent 'clark'; did you mean 'clerk'? there are: clerk, default", "task: Field required"],
        [
            ("agent", "there is no agent 'clark'; did you mean 'clerk'? there are: clerk, default"),
            ("task", "Field required"),
        ],
    ),
    "a hint that looks like a key": (["a: b; c: d"], [("a", "b; c: d")]),
    "problems that are left out": (["a: b", "and 3 more"], [("a", "b"), ("input", "and 3 more")]),
    "a value after the key": (["id '-x': must not begin with -"], [("id", "'-x': must not begin with -")]),
    "no key": (["must not be this"], [("input", "must not be this")]),
}


@pytest.mark.parametrize(("problems", "expected"), INPUTS.values(), ids=INPUTS)
def test_each_problem_of_an_input_has_its_key_and_its_whole_text(
    problems: list[str], expected: list[tuple[str, str]]
) -> None:
    error = InvalidInput(*problems)
    assert str(error) == "; ".join(problems)
    found = invalid(error.problems).errors
    assert [(each["where"], each["detail"]) for each in found] == expected


REMEDIES: dict[str, tuple[Exception, str]] = {
    "no run": (RunNotFound("a"), "there is no run 'a'; the list of runs shows the ids"),
    "no schedule": (ScheduleNotFound("a"), "there is no schedule 'a'; the list of schedules shows the ids"),
    "an ended run": (RunEnded("a b"), "run 'a b' has ended; its journal shows how"),
    "a command for operators": (OrgaError("no server; see `orga doctor`"), "no server; see `orga doctor`"),
}


@pytest.mark.parametrize(("error", "expected"), REMEDIES.values(), ids=REMEDIES)
def test_a_remedy_is_possible_without_a_terminal(error: Exception, expected: str) -> None:
    assert error_text(error) == expected


async def test_a_run_that_the_console_cannot_decode_is_an_answer_about_the_run() -> None:
    app = Starlette()
    app.state.error_forms = {}
    headers: list[tuple[bytes, bytes]] = []
    scope = {"type": "http", "app": app, "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    answer = await handle_problem(Request(scope), UnreadableRun())
    assert (answer.status_code, b"payload codec" in bytes(answer.body)) == (422, True)
