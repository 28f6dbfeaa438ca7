"""A worker with `[notify]` sends notifications. Without its secret it does not start and shows the remedy."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from orga.client.config.sections import NotifyConfig, OrgaConfig
from orga.client.connect import Connection
from orga.client.server.endpoint import Endpoint
from orga.client.workers.checked import worker_report
from orga.client.workers.parts import Parts, configured_parts
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.workplace import Workplace
from tests.support.web.webhook_receiver import SECRET

URL = "https://hooks.test/x"
ENV = {"ORGA_NOTIFY_SECRET": SECRET}


def parts(root: Path, notify: NotifyConfig, env: dict[str, str]) -> Parts:
    return configured_parts(OrgaConfig(notify=notify), env, root, knows_attributes=False)


@pytest.mark.parametrize(
    ("notify", "expected"),
    [
        pytest.param(NotifyConfig(), {}, id="no notification"),
        pytest.param(NotifyConfig(url=URL), {"notify": ["approval", "answer", "escalation", "budget"]}, id="questions"),
        pytest.param(NotifyConfig(url=URL, events=("ended",)), {"notify": ["ended"]}, id="only the end"),
    ],
)
async def test_a_run_records_the_kinds_of_its_notifications_and_never_the_address(
    tmp_path: Path, notify: NotifyConfig, expected: dict[str, list[str]]
) -> None:
    found = parts(tmp_path, notify, ENV)
    setup = await found.agents.setup(PrepareRequest())
    recorded = setup.model_dump_json(exclude_unset=True)
    assert setup.model_dump(mode="json", include={"notify"}, exclude_unset=True) == expected
    assert ("hooks.test" in recorded, SECRET in recorded) == (False, False)
    assert (found.notifier is not None) is bool(expected)


def test_a_worker_without_the_secret_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORGA_NOTIFY_SECRET", raising=False)
    says = "but not ORGA_NOTIFY_SECRET in the environment; set it to"
    with pytest.raises(ValueError, match=says):
        parts(tmp_path, NotifyConfig(url=URL), {})
    report = worker_report(OrgaConfig(notify=NotifyConfig(url=URL)), tmp_path, os.environ)
    assert [problem["place"] for problem in report["problems"] if says in problem["problem"]] == ["notify"]


def test_neither_secret_nor_address_from_the_environment_reaches_a_history(tmp_path: Path) -> None:
    known = parts(tmp_path, NotifyConfig(url=URL), ENV | {"ORGA_NOTIFY__URL": URL}).secrets
    assert known.redact(f"{SECRET} {URL}") == "[redacted] [redacted]"


@pytest.mark.parametrize(
    ("known", "configured", "expected"),
    [
        pytest.param(None, None, None, id="no known UI"),
        pytest.param(
            "http://127.0.0.1:8233", None, "http://127.0.0.1:8233/namespaces/n/workflows/a%2Fb", id="embedded"
        ),
        pytest.param(None, "https://ui.test/", "https://ui.test/namespaces/n/workflows/a%2Fb", id="configured"),
        pytest.param(
            "http://x", "https://ui.test", "https://ui.test/namespaces/n/workflows/a%2Fb", id="configured wins"
        ),
    ],
)
def test_a_link_points_to_the_ui(known: str | None, configured: str | None, expected: str | None) -> None:
    connection = Connection(cast(Any, None), Endpoint("h:1", known, "n"), Workplace(folder="/", root="/"), "q", "q")
    assert connection.with_ui(configured).link("a/b") == expected
