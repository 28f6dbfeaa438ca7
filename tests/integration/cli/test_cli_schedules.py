"""`orga schedule` as users type it: real processes, the embedded server, a real worker, the embedded model."""

import json
import time
from typing import Any

from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga
from tests.support.values.pictures import a_png

__all__ = ["home", "orga"]


def listed(orga: Orga, schedule: str) -> dict[str, Any]:
    """Return the row of a schedule. The server's list may lag a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for row in json.loads(orga("schedule", "list", "--json").out or "[]"):
            if row["id"] == schedule:
                return row
    raise AssertionError(f"{schedule} is not listed")


def test_a_schedule_from_its_creation_to_its_deletion(orga: Orga) -> None:
    times = ("--cron", "0 7 * * 1-5", "--tz", "Europe/Berlin", "--jitter", "5m", "--end", "2099-12-31T00:00")
    made = orga("schedule", "create", "morning", *times, "--task", "What is the retry limit?", "--note", "for us")
    assert (made.code, made.out) == (0, "morning\n")
    assert "07:0" in made.err
    assert "its runs wait; start one with: orga worker" in made.err
    again = orga("schedule", "create", "morning", *times, "--task", "x")
    assert (again.code, "there is a schedule 'morning' already" in again.err) == (2, True)

    with orga.started("worker") as worker:
        worker.line("polls task queue")
        run_id = orga("schedule", "trigger", "morning").out.strip()
        attached = orga("attach", run_id)
    assert (attached.code, "five attempts" in attached.out) == (0, True)

    assert run_id in [row["id"] for row in json.loads(orga("list", "--json").out)]
    assert orga("status", run_id).code == orga("journal", run_id).code == 0
    assert [(run["id"], run["state"]) for run in listed(orga, "morning")["runs"]] == [(run_id, "completed")]
    shown = orga("schedule", "show", "morning").out
    for reported in ("0 7 * * 1-5 Europe/Berlin, delayed by up to 5m, until 2099-12-31 00:00", "note: for us", run_id):
        assert reported in shown
    assert json.loads(orga("schedule", "show", "morning", "--json").out)["input"] == {
        "task": "What is the retry limit?"
    }

    assert orga("schedule", "pause", "morning", "until monday").code == 0
    while "paused" not in orga("schedule", "list").out:  # the server updates its list a moment later
        time.sleep(0.1)
    assert "note: until monday" in orga("schedule", "show", "morning").out
    assert orga("schedule", "resume", "morning").code == 0
    assert orga("schedule", "delete", "morning").code == 0
    gone = orga("schedule", "show", "morning")
    assert gone.code == 2
    assert gone.err.splitlines()[-1] == "orga: there is no schedule 'morning'; `orga schedule list` shows the ids"
    assert run_id in orga("list").out


def test_a_scheduled_task_has_pictures(orga: Orga) -> None:
    (orga.folder / "chart.png").write_bytes(a_png())
    made = orga("schedule", "create", "look", "--every", "1d", "--task", "What is this?", "--attach", "chart.png")
    assert made.code == 0
    [attached] = json.loads(orga("schedule", "show", "look", "--json").out)["input"]["attachments"]
    assert (attached["name"], attached["media_type"]) == ("chart.png", "image/png")
    refused = orga("schedule", "create", "none", "--every", "1d", "--task", "What is this?", "--attach", "absent.png")
    assert (refused.code, "absent.png" in refused.err) == (2, True)
    assert orga("schedule", "delete", "look").code == 0


def test_a_refusal_by_the_server_is_reported_in_one_line(orga: Orga) -> None:
    refused = orga("schedule", "create", "bad", "--cron", "0 77 * * *", "--goal", "x")
    assert refused.code == 2
    assert "Hour is not in range" in refused.err.splitlines()[-1]
