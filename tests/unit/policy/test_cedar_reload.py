"""Policies that change while a worker works: the new ones hold within a second, broken ones deny everything at last."""

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
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """An engine over a folder, and its clock."""

    def __init__(self, root: Path, **files: str) -> None:
        self.root, self.clock = root, Clock()
        self.engine = CedarPolicies(a_folder(root, **files), clock=self.clock, hold_s=0)

    async def allows(self, **changed: str) -> bool:
        """Change files, let time pass and judge."""
        a_folder(self.root, **changed)
        self.clock.now += CHECK_INTERVAL_S
        return (await self.engine.judge(a_tool_proposal())).decision != "deny"


async def test_a_change_holds_after_a_second_and_names_its_version(tmp_path: Path) -> None:
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


async def test_files_that_come_and_go(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    assert not await watched.allows(b=FORBID)
    (tmp_path / "policies" / "b.cedar").unlink()
    assert await watched.allows()
    (tmp_path / "policies" / "a.cedar").unlink()
    assert not await watched.allows()


async def test_a_broken_set_denies_everything_until_it_is_mended(
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
    said = [record.levelname for record in caplog.records]
    assert said == ["ERROR", "WARNING"]


async def test_what_an_editor_leaves_while_it_writes_does_not_count(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    (tmp_path / "policies" / ".#a.cedar").symlink_to("me@host.1234")
    (tmp_path / "policies" / "a.cedar~").write_text(FORBID)
    assert await watched.allows()


async def test_a_folder_that_vanishes_denies_everything(tmp_path: Path) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    hidden = (tmp_path / "policies").rename(tmp_path / "away")
    watched.clock.now += CHECK_INTERVAL_S
    judgement = await watched.engine.judge(a_tool_proposal())
    assert (judgement.decision != "deny", "there is no such folder" in judgement.reason) == (False, True)
    hidden.rename(tmp_path / "policies")
    assert await watched.allows()


async def test_proposals_that_come_together_are_all_judged(tmp_path: Path) -> None:
    """One of them looks at the files; none waits for another for ever."""
    watched = Watched(tmp_path, a=PERMIT_ALL)
    watched.clock.now += CHECK_INTERVAL_S
    found = await asyncio.gather(*(watched.engine.judge(a_tool_proposal()) for _ in range(50)))
    assert all(judgement.decision != "deny" for judgement in found)


def as_read(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """Let the looks at the folder find these texts in its file, one after the other, the last two for ever."""
    looks = itertools.chain(texts, itertools.cycle(texts[-2:]))

    def as_found(*_: object) -> tuple[PolicyFile, ...]:
        return (PolicyFile("a", "a", next(looks).encode()),)

    monkeypatch.setattr(cedar, "policy_files", as_found)
    monkeypatch.setattr(cedar, "SETTLED_S", 0)


async def test_a_file_that_is_half_written_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cp` empties a file before it writes it: for a moment nothing would be forbidden."""
    watched = Watched(tmp_path, a=PERMIT_ALL)
    whole = PERMIT_ALL + FORBID
    as_read(monkeypatch, PERMIT_ALL, whole, whole)
    assert not await watched.allows()


async def test_files_that_never_come_to_rest_deny_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    as_read(monkeypatch, f"{PERMIT_ALL}//", f"{PERMIT_ALL}///")
    watched.clock.now += CHECK_INTERVAL_S
    judgement = await watched.engine.judge(a_tool_proposal())
    assert (judgement.decision != "deny", "change again and again" in judgement.reason) == (False, True)


async def test_a_policy_in_a_file_of_capitals_counts(tmp_path: Path) -> None:
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
async def test_what_is_no_file_denies_everything(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    watched = Watched(tmp_path, a=PERMIT_ALL)
    plant(tmp_path / "policies" / "b.cedar")
    assert not await watched.allows()


async def test_a_folder_that_cannot_be_listed_denies_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the call that looked, but all until the next look, too."""
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


async def test_calls_wait_for_policies_that_are_mended_within_seconds(tmp_path: Path) -> None:
    """A live run does not end as denied by policy since somebody saved half a sentence."""
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


async def test_what_is_not_mended_is_denied_after_a_stated_time_in_words_without_a_place(tmp_path: Path) -> None:
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
    """Else nobody would be told why."""
    assert HOLD_S + CHECK_INTERVAL_S < ATTEMPT_S * MAX_ATTEMPTS
