"""Policies that change while a worker runs apply within a second, and broken ones finally deny everything."""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orga.activities.adapters.policy import cedar
from orga.activities.adapters.policy.cedar import CHECK_INTERVAL_S, HOLD_S, CedarPolicies
from orga.activities.adapters.policy.cedar_files import PolicyFile, files_version, policy_files
from orga.workflows.phases.gate import ATTEMPT_S, MAX_ATTEMPTS
from tests.support.values.policies import PERMIT_ALL, a_folder, a_tool_proposal

FORBID = '@id("no") forbid (principal, action, resource);'


class Clock:
    """Stops until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """An engine for a folder, and its clock."""

    def __init__(self, root: Path, **files: str) -> None:
        self.root, self.clock = root, Clock()
        self.engine = CedarPolicies(a_folder(root, **files), clock=self.clock, hold_s=0)

    async def allows(self, **changed: str) -> bool:
        """Change files, advance the clock and judge."""
        a_folder(self.root, **changed)
        self.clock.now += CHECK_INTERVAL_S
        return (await self.engine.judge(a_tool_proposal())).decision != "deny"


async def test_a_change_applies_after_a_second_with_its_new_version(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    before = await watched.engine.judge(a_tool_proposal())
    a_folder(tmp_path, b=FORBID)
    soon = await watched.engine.judge(a_tool_proposal())
    watched.clock.now = CHECK_INTERVAL_S
    later = await watched.engine.judge(a_tool_proposal())
    assert [(j.decision != "deny", j.version == before.version) for j in (before, soon, later)] == [
        (True, True),
        (True, True),
        (False, False),
    ]


async def test_added_and_removed_files_are_noticed(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    assert not await watched.allows(b=FORBID)
    (tmp_path / "policies" / "b.cedar").unlink()
    assert await watched.allows()
    (tmp_path / "policies" / "a.cedar").unlink()
    assert not await watched.allows()


async def test_a_broken_set_denies_everything_until_it_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    with caplog.at_level(logging.WARNING):
        assert not await watched.allows(b="forbid (principal, nonsense);")
        assert not await watched.allows()
        denied = await watched.engine.judge(a_tool_proposal())
        version = files_version(policy_files(tmp_path / "policies"))
        assert await watched.allows(b="")
    assert denied.reason.startswith("the policies are broken: policies/b.cedar:1: cannot be parsed: ")
    assert denied.version == version
    levels = [record.levelname for record in caplog.records]
    assert levels == ["ERROR", "WARNING"]


async def test_temporary_files_of_an_editor_are_ignored(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    (tmp_path / "policies" / ".#a.cedar").symlink_to("me@host.1234")
    (tmp_path / "policies" / "a.cedar~").write_text(FORBID)
    assert await watched.allows()


async def test_a_removed_folder_denies_everything(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    hidden = (tmp_path / "policies").rename(tmp_path / "away")
    watched.clock.now += CHECK_INTERVAL_S
    judgement = await watched.engine.judge(a_tool_proposal())
    assert (judgement.decision != "deny", "there is no such folder" in judgement.reason) == (False, True)
    hidden.rename(tmp_path / "policies")
    assert await watched.allows()


async def test_concurrent_proposals_are_all_judged(tmp_path: Path) -> None:
    """One of them checks the files, and none waits for another forever."""
    watched = Watched(tmp_path, a=PERMIT_ALL)
    watched.clock.now += CHECK_INTERVAL_S
    found = await asyncio.gather(*(watched.engine.judge(a_tool_proposal()) for _ in range(50)))
    assert all(judgement.decision != "deny" for judgement in found)


def as_read(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """Let reads of the folder find these texts in turn, and then the last two forever."""
    looks = itertools.chain(texts, itertools.cycle(texts[-2:]))

    def as_found(*_: object) -> tuple[PolicyFile, ...]:
        return (PolicyFile("a", "a", next(looks).encode()),)

    monkeypatch.setattr(cedar, "policy_files", as_found)
    monkeypatch.setattr(cedar, "SETTLED_S", 0)


async def test_a_partly_written_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cp` empties a file before it writes it, so for a moment nothing would be forbidden."""
    watched = Watched(tmp_path, a=PERMIT_ALL)
    whole = PERMIT_ALL + FORBID
    as_read(monkeypatch, PERMIT_ALL, whole, whole)
    assert not await watched.allows()


async def test_files_that_keep_changing_deny_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    as_read(monkeypatch, f"{PERMIT_ALL}//", f"{PERMIT_ALL}///")
    watched.clock.now += CHECK_INTERVAL_S
    judgement = await watched.engine.judge(a_tool_proposal())
    assert (judgement.decision != "deny", "change again and again" in judgement.reason) == (False, True)


async def test_a_policy_in_a_file_with_an_upper_case_name_counts(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    (tmp_path / "policies" / "NO.CEDAR").write_text(FORBID)
    assert not await watched.allows()


def leads_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(os.mkfifo, id="a pipe"),
        pytest.param(Path.mkdir, id="a folder"),
        pytest.param(leads_to("nowhere"), id="a link to nothing"),
        pytest.param(leads_to("/dev/zero"), id="a link to a device"),
    ],
)
async def test_an_entry_that_is_no_file_denies_everything(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    plant(tmp_path / "policies" / "b.cedar")
    assert not await watched.allows()


async def test_an_unlistable_folder_denies_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also applies to all calls until the next check."""
    watched = Watched(tmp_path, a=PERMIT_ALL)

    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    watched.clock.now += CHECK_INTERVAL_S
    found = [await watched.engine.judge(a_tool_proposal()) for _ in range(2)]
    assert [(judgement.decision != "deny", "Permission denied" in judgement.reason) for judgement in found] == [
        (False, True)
    ] * 2


BROKEN = "forbid (principal, nonsense);"


async def test_calls_wait_for_policies_that_are_repaired_within_seconds(tmp_path: Path) -> None:
    """A running task does not end as denied by policy because somebody saved an incomplete file."""
    clock = Clock()
    engine = CedarPolicies(a_folder(tmp_path, a=PERMIT_ALL), clock=clock, hold_s=CHECK_INTERVAL_S * 5)
    a_folder(tmp_path, b=BROKEN)
    clock.now = CHECK_INTERVAL_S
    waiting = [asyncio.create_task(engine.judge(a_tool_proposal()))]
    assert not (await asyncio.wait(waiting, timeout=0.6))[0]
    waiting.append(asyncio.create_task(engine.judge(a_tool_proposal())))
    assert not (await asyncio.wait(waiting, timeout=0.6))[0]
    a_folder(tmp_path, b="")
    clock.now = CHECK_INTERVAL_S * 3
    assert [judgement.decision != "deny" for judgement in await asyncio.gather(*waiting)] == [True, True]


async def test_broken_policies_deny_after_a_fixed_time_with_a_reason_without_a_path(tmp_path: Path) -> None:
    clock = Clock()
    engine = CedarPolicies(a_folder(tmp_path, a=PERMIT_ALL), clock=clock, hold_s=CHECK_INTERVAL_S * 5)
    (tmp_path / "policies").rename(tmp_path / "away")
    clock.now = CHECK_INTERVAL_S
    waiting = asyncio.create_task(engine.judge(a_tool_proposal()))
    done, _ = await asyncio.wait([waiting], timeout=0.6)
    assert not done
    clock.now = CHECK_INTERVAL_S * 7
    judgement = await waiting
    assert (judgement.decision != "deny", str(tmp_path) in judgement.reason) == (False, False)
    assert judgement.reason.startswith("the policies are broken: policies: there is no such folder")
    assert (await engine.judge(a_tool_proposal())).decision == "deny"


def test_the_hold_ends_within_the_attempts_of_the_gate() -> None:
    """Otherwise the reason would not be reported."""
    assert HOLD_S + CHECK_INTERVAL_S < ATTEMPT_S * MAX_ATTEMPTS
