"""Deployment versions in command output: which version gets new runs, which ones poll, and the remedy."""

import pytest
from temporalio.common import WorkerDeploymentVersion as Version

from orga.client.cli.workbench.doctor import version_checks
from orga.client.server.endpoint import Endpoint
from orga.client.workers.deployment import Routing, deployment_name, make_current_command
from orga.client.workers.early_start import WorkerOrder

SERVER = Endpoint("temporal.test:7233", namespace="my shop")
OLD, NEW = Version("shop", "1"), Version("shop", "2")
NONE = set[Version | None]()
MAKE_NEW_CURRENT = (
    "temporal worker deployment set-current-version --address temporal.test:7233 --namespace 'my shop' "
    "--deployment-name shop --build-id 2"
)


def test_the_command_makes_a_version_current() -> None:
    assert make_current_command(NEW, SERVER) == MAKE_NEW_CURRENT


@pytest.mark.parametrize(
    ("current", "polled", "mark", "detail", "remedy"),
    [
        pytest.param(OLD, {OLD}, "ok", "new runs go to shop.1", "", id="one version"),
        pytest.param(
            NEW, {OLD, NEW}, "ok", "go to shop.2; workers of shop.1 poll, too", "", id="an older version also polls"
        ),
        pytest.param(
            OLD, {OLD, NEW}, "ok", "go to shop.1; workers of shop.2 poll, too", "", id="a newer version polls"
        ),
        pytest.param(
            OLD,
            {NEW},
            "wrong",
            "go to version shop.1, of which no worker polls",
            "build-id 2",
            id="only another version polls",
        ),
        pytest.param(OLD, NONE, "wrong", "of which no worker polls", "start such a worker", id="nobody polls"),
        pytest.param(OLD, {None}, "wrong", "of which no worker polls", "start such a worker", id="none with a version"),
        pytest.param(None, {NEW}, "wrong", "no worker takes new runs", MAKE_NEW_CURRENT, id="none is current"),
        pytest.param(None, {None, NEW}, "warning", "go to workers without", MAKE_NEW_CURRENT, id="before the first"),
    ],
)
def test_the_doctor_reports_which_version_takes_new_runs(
    current: Version | None, polled: set[Version | None], mark: str, detail: str, remedy: str
) -> None:
    [found] = version_checks(Routing(current, frozenset(polled)), "orga", SERVER)
    assert ("warning" if found.warning else "ok" if found.ok else "wrong") == mark
    assert detail in found.detail
    assert remedy in found.remedy


@pytest.mark.parametrize("polled", [NONE, {None}])
def test_without_versions_nothing_is_reported(polled: set[Version | None]) -> None:
    assert version_checks(Routing(None, frozenset(polled)), "orga", SERVER) == []


@pytest.mark.parametrize("text", ["", "a.b", "a:b", "-a", "_a", "ü", "a b", "a\n", "x" * 65])
def test_an_invalid_deployment_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="1 to 64 letters, digits"):
        deployment_name(text)


@pytest.mark.parametrize("text", ["shop", "a", "Shop_2-b", "x" * 64])
def test_a_valid_deployment_name_is_accepted(text: str) -> None:
    assert deployment_name(text) == text


def test_a_started_worker_gets_the_deployment_of_its_version() -> None:
    order = WorkerOrder(None, None, "orga")
    assert order.arguments() == ["--task-queue", "orga"]
    assert WorkerOrder(None, None, "orga", deployment="shop").arguments()[-2:] == ["--deployment", "shop"]
