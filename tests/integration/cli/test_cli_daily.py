"""A newcomer's first hour at the command line: init, a first run, its report and its page, without a worker."""

import json
import re

from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga

__all__ = ["home", "orga"]


def test_the_agent_of_a_fresh_configuration_runs_and_its_report_can_be_shared(orga: Orga) -> None:
    made = orga("init", ORGA_TRUST="")
    assert (made.code, made.out) == (0, "orga.toml\n"), made.err
    ran = orga("run", "What is the retry limit?", "-q", "--id", "first", ORGA_TRUST="")
    assert ran.code == 0, ran.err
    assert "five attempts" in ran.out
    assert ran.err == ""
    page = orga("journal", "first", "--html").out
    assert page.startswith("<!doctype html>")
    assert "What is the retry limit?" in page
    assert "five attempts" in page
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/namespaces/default/workflows/first\n", orga("open", "first").out)


def test_a_command_without_a_worker_says_so_and_a_refused_run_does_not_exist(orga: Orga) -> None:
    refused = orga("run", "x", "--agent", "nobody", "--id", "refused")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "orga: agent: there is no agent 'nobody'; there are: default\n"
    waiting = json.loads(orga("run", "x", "--detach", "--json", "--id", "waiting").out)
    for command in ("steer", "abort"):
        output = orga(command, "waiting", "why").err
        assert f"{command} sent to waiting" in output
        assert re.search(r"no worker polls .*: nothing happens until one does; start one with: orga worker", output)
    assert waiting["id"] == "waiting"
    assert orga("status", "refused").err.endswith("there is no run 'refused'; `orga list` shows the ids\n")


def test_a_rewind_without_a_worker_says_so_and_the_run_is_listed_once(orga: Orga) -> None:
    assert orga("run", "What is the retry limit?", "-q", "--id", "back").code == 0
    rewound = orga("rewind", "back", "--to-iteration", "0", "--yes")
    assert rewound.code == 0, rewound.err
    assert re.search(r"no worker polls .*: nothing happens until one does; start one with: orga worker", rewound.err)

    def listed(*words: str) -> list[str]:
        return [row["state"] for row in json.loads(orga("list", "--json", *words).out) if row["id"] == "back"]

    of_completed = ("--query", "OrgaTermination = 'completed'")
    assert (listed(), listed(*of_completed)) == (["running"], [])
    assert orga("attach", "back").code == 0
    assert (listed(), listed(*of_completed)) == (["completed"], ["completed"])


def test_a_session_of_a_script_ends_with_the_script(orga: Orga) -> None:
    """The worker ends with the script that started it, so nobody could end the session later."""
    closed = orga("chat", "--id", "closed", stdin=b"What is the retry limit?\n/close\n")
    assert (closed.code, closed.err.splitlines()[-1]) == (0, "the session has ended; start a new one with: orga chat")
    silent = orga("chat", "--id", "silent", stdin=b"\n")
    assert (silent.code, silent.err.splitlines()[-1]) == (0, "nothing was sent, so the session is closed")
    for session in ("closed", "silent"):
        assert json.loads(orga("status", session, "--json").out)["termination"]["reason"] == "completed"
