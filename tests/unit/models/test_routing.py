"""Deployment versions in command output: which version gets new runs, which ones poll, and the remedy."""

from types import SimpleNamespace
from typing import cast

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentVersion as DescribedVersion
from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionInfo, WorkflowExecutionVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import WorkflowExecutionDescription
from temporalio.common import WorkerDeploymentVersion as Version

from orga.client.cli.workbench.doctor import version_checks
from orga.client.server.endpoint import Endpoint
from orga.client.server.versions import Routing
from orga.client.workers.deployment import deployment_name, make_current_command
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
        pytest.param(None, {NEW}, "wrong", "new runs; workers of shop.2 poll", MAKE_NEW_CURRENT, id="none is current"),
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


def a_run(pinned_to: Version | None, override: VersioningOverride | None = None) -> WorkflowExecutionDescription:
    """Return a run, pinned to a version or not. Workers have pinned each run that has a version."""
    info = WorkflowExecutionVersioningInfo(versioning_override=override)
    if pinned_to is not None:
        info.behavior = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
        info.deployment_version.CopyFrom(described(pinned_to))
    raw = DescribeWorkflowExecutionResponse(workflow_execution_info=WorkflowExecutionInfo(versioning_info=info))
    return cast("WorkflowExecutionDescription", SimpleNamespace(raw_description=raw))


def described(version: Version) -> DescribedVersion:
    return DescribedVersion(deployment_name=version.deployment_name, build_id=version.build_id)


PINNED_BY_HAND = VersioningOverride(pinned=VersioningOverride.PinnedOverride(version=described(OLD)))
MOVED_BY_HAND = VersioningOverride(auto_upgrade=True)


@pytest.mark.parametrize(
    ("run", "current", "polled", "may_serve"),
    [
        pytest.param(a_run(OLD), NEW, {OLD, NEW}, True, id="its version polls"),
        pytest.param(a_run(OLD), NEW, {NEW}, False, id="only a newer version polls"),
        pytest.param(a_run(OLD), None, {None}, False, id="only workers without a version poll"),
        pytest.param(a_run(OLD, MOVED_BY_HAND), NEW, {NEW}, True, id="it was moved by hand"),
        pytest.param(a_run(NEW, PINNED_BY_HAND), NEW, {NEW}, False, id="it was pinned to an older version by hand"),
        pytest.param(a_run(None), NEW, {NEW}, True, id="it has no version yet, and the current one polls"),
        pytest.param(a_run(None), NEW, {OLD, None}, False, id="it has no version yet, and the current one is gone"),
        pytest.param(a_run(None), None, {None}, True, id="there are no versions"),
        pytest.param(a_run(None), None, NONE, False, id="nobody polls"),
    ],
)
def test_a_run_is_served_only_by_a_worker_of_its_version(
    run: WorkflowExecutionDescription, current: Version | None, polled: set[Version | None], may_serve: bool
) -> None:
    assert Routing(current, frozenset(polled)).may_serve(run) == may_serve


def test_a_version_that_gets_a_part_of_the_new_runs_may_serve_one() -> None:
    assert Routing(OLD, frozenset({NEW}), is_ramping=True).may_serve(a_run(None))


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
