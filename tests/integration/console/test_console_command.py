"""`orga console` as a process: it serves, keeps a worker, survives being killed, and ends at once."""

import json
import signal
import time
from collections.abc import Generator

import httpx2 as httpx
import pytest

from orga.client.console.doors import private_name
from tests.support.programs.orga_command import Orga, Running, an_orga

AT_ONCE_S = 10.0
"""Seconds for the end of the command, on a machine that does other things, too. It takes half a second alone."""


@pytest.fixture(scope="module")
def orga(tmp_path_factory: pytest.TempPathFactory) -> Generator[Orga]:
    found = an_orga(tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home"))
    yield found
    found("server", "--stop")


def address_of(running: Running) -> tuple[str, str]:
    found = running.line(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)")
    return found[1], found[2]


def test_ctrl_c_ends_the_console_at_once_although_a_stream_is_open(orga: Orga) -> None:
    with orga.started("console", "--port", "0", "--no-worker") as running:
        base, token = address_of(running)
        login = {"Authorization": f"Bearer {token}"}
        with httpx.stream("GET", f"{base}/api/v1/events?topics=runs,inbox", headers=login, timeout=30) as stream:
            assert next(stream.iter_bytes())
            began = time.monotonic()
            running.send(signal.SIGINT)
            assert running.code() == 0
            assert time.monotonic() - began < AT_ONCE_S
        assert "Traceback" not in "\n".join(running.err)


def test_a_console_that_is_killed_comes_back_with_the_same_token(orga: Orga) -> None:
    with orga.started("console", "--port", "0", "--no-worker", "--json") as running:
        address = running.line('"url": "(.*?)"')[1]
        running.send(signal.SIGKILL)
        running.code()
    with orga.started("console", "--port", "0", "--no-worker") as again:
        base, token = address_of(again)
        assert address.endswith(f"?token={token}")
        entered = httpx.get(f"{base}/?token={token}")
        assert entered.status_code == 303
        private = {"Host": f"{private_name(token)}:{httpx.URL(base).port}"}
        cookie = httpx.get(f"{base}/?token={token}", headers=private).cookies
        assert httpx.get(base, headers=private, cookies=cookie).status_code == 200
        assert again.line(rf"http://{private['Host']}/\?token={token}$")
        assert httpx.get(f"{base}/api/v1/me").status_code == 401


def test_the_console_keeps_a_worker_that_carries_out_what_it_starts(orga: Orga) -> None:
    with orga.started("console", "--port", "0") as running:
        base, token = address_of(running)
        running.line("polls task queue")
        login = {"Authorization": f"Bearer {token}", "X-Orga-Console": "1"}
        unknown = {"kind": "agent", "input": {"task": "a", "agent": "nobody"}}
        assert httpx.post(f"{base}/api/v1/runs", json=unknown, headers=login).status_code == 422
        start = {"kind": "agent", "id": "from-a-page", "input": {"task": "What is this?"}}
        assert httpx.post(f"{base}/api/v1/runs", json=start, headers=login).status_code == 201
        shown = orga("attach", "from-a-page", "--no-worker")
        assert shown.code in {0, 3, 6}, shown.err
        assert httpx.get(f"{base}/api/v1/runs/from-a-page", headers=login).json()["ended"]


def test_a_token_is_made_once_and_a_public_console_without_names_does_not_start(orga: Orga) -> None:
    made = orga("console", "--add-token", "ada", "--role", "approver", "--tokens", "tokens.json", "--json")
    assert json.loads(made.out)["token"] not in (orga.folder / "tokens.json").read_text()
    refused = orga("console", "--host", "0.0.0.0")
    assert (refused.code, "--tokens FILE" in refused.err) == (2, True)


def test_dev_prints_the_address_of_its_console(orga: Orga) -> None:
    with orga.started("dev") as running:
        found = running.line(r"\[console\] for scripts: (http://127\.0\.0\.1:\d+)/\?token=(\S+)")
        login = {"Authorization": f"Bearer {found[2]}"}
        assert httpx.get(f"{found[1]}/api/v1/me", headers=login).status_code == 200
        running.send(signal.SIGINT)
        running.code()
