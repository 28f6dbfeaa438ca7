"""Names of runs in commands: by an id prefix, as the newest, or from the list. Also what an ended run shows."""

import json
from pathlib import Path

import pytest

from orga.client.runs import ids
from tests.support.programs.inline_command import an_inline_orga
from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga

__all__ = ["home", "orga"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands wait for a server that lists late, because the tests rely on the list."""
    monkeypatch.setattr(ids, "LOOKS", 600)


def a_detached_run(orga: Orga, *arguments: str) -> str:
    return orga("run", "a task", "--detach", *arguments).out.strip()


def test_an_id_prefix_names_the_one_run_that_has_it(orga: Orga) -> None:
    run_id = a_detached_run(orga)
    bare = run_id.removeprefix("agent-")
    for prefix in (bare[:18], run_id[:24], bare):
        shown = orga("status", prefix, "--json")
        assert shown.code == 0, shown.err
        assert json.loads(shown.out)["task"] == "a task"
        assert f"run {run_id}" in shown.err.splitlines()
    by_id = orga("status", run_id, "--json")
    assert f"run {run_id}" not in by_id.err.splitlines()


def test_an_ambiguous_prefix_lists_the_ids_newest_first_and_changes_nothing(orga: Orga) -> None:
    first, second = (a_detached_run(orga, "--id", f"harbour-{name}") for name in ("one", "two"))
    refused = orga("abort", "harbour-")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"orga: 'harbour-' is the beginning of 2 ids, newest first: {second}, {first}; type more of it\n"
    )
    assert "abort" not in orga("journal", first).out + orga("journal", second).out


def test_an_exact_id_is_not_taken_for_a_prefix(orga: Orga) -> None:
    a_detached_run(orga, "--id", "night")
    a_detached_run(orga, "--id", "night-2")
    done = orga("abort", "night", "--json")
    assert (done.code, json.loads(done.out)["id"]) == (0, "night")


def test_a_command_that_ends_a_run_by_prefix_names_the_run(orga: Orga) -> None:
    run_id = a_detached_run(orga, "--id", "lighthouse-of-1999")
    done = orga("abort", "lighthouse")
    assert done.code == 0
    reported = done.err.splitlines()
    assert reported.index(f"run {run_id}") < reported.index(f"abort sent to {run_id}; see: orga journal {run_id}")


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("age", "'age' is too short for an id's beginning: type 4 characters; `orga list` shows the ids"),
        ("goal-", "'goal-' is too short for an id's beginning: type 4 characters after 'goal-'; `orga list` shows"),
        ("session-01", "'session-01' is too short for an id's beginning: type 4 characters after 'session-'"),
        ("agent-ffff", "there is no run 'agent-ffff'"),
    ],
)
def test_a_prefix_that_is_too_short_is_refused(orga: Orga, prefix: str, expected: str) -> None:
    done = orga("status", prefix)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"orga: {expected}")


@pytest.mark.parametrize("prefix", ["agent-", "age", "it's 100%"])
def test_an_unknown_prefix_is_an_error_with_a_remedy(orga: Orga, prefix: str) -> None:
    done = orga("status", prefix)
    assert done.code == 2
    assert done.err.splitlines()[-1].endswith("`orga list` shows the ids")


def test_last_is_the_newest_run_of_this_folder(
    home: Path, orga: Orga, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = an_inline_orga(tmp_path_factory.mktemp("elsewhere"), home)
    nothing = elsewhere("steer", "--last", "go on")
    assert (nothing.code, nothing.err.splitlines()[-1]) == (
        2,
        'orga: there is no run here yet; start one with: orga run "…"',
    )
    ours = a_detached_run(orga)
    theirs = a_detached_run(elsewhere)
    steered = orga("steer", "--last", "be brief", "--json")
    assert (steered.code, json.loads(steered.out)["id"]) == (0, ours)
    assert f"run {ours}" in steered.err.splitlines()
    assert json.loads(elsewhere("pause", "--json", "--last").out)["id"] == theirs
    both = orga("status", "--last", ours)
    assert (both.code, both.out) == (2, "")


def test_an_ended_run_shows_task_answer_and_conversation_without_a_worker(orga: Orga) -> None:
    asked = "What is the retry limit?"
    answer = orga("run", asked).out.rstrip("\n")
    shown = orga("status", "--last")
    lines = shown.out.splitlines()
    assert lines[0] == f"task       {asked}"
    assert f"answer     {answer.splitlines()[0]}" in lines
    assert "orga worker" not in shown.err
    reported = json.loads(orga("status", "--last", "--json").out)
    assert (reported["task"], reported["answer"], reported["from"]) == (asked, answer, "history")
    messages = json.loads(orga("conversation", "--last", "--json").out)
    assert [messages[0]["role"], messages[1]["text"], messages[-1]["text"]] == ["system", asked, answer]
    [row] = [each for each in json.loads(orga("list", "--json").out) if each["folder"] == str(orga.folder)]
    assert (row["task"], row["agent"], row["state"], row["iteration"]) == (
        asked,
        "default",
        "completed",
        reported["iteration"],
    )
