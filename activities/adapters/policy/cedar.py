"""The Cedar engine: policies of a folder, compiled once and again when a file changes."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from orga.activities.adapters.policy.cedar_files import PolicyFile, policy_files, version_of
from orga.activities.adapters.policy.cedar_judgement import judged
from orga.activities.adapters.policy.cedar_set import CedarSet, compiled
from orga.activities.adapters.policy.problems import BrokenPolicies
from orga.activities.adapters.problem import Problem
from orga.activities.ports import Judgement, Proposal
from orga.activities.threads import Threads

LOOK_S = 1.0
"""How old a change of a policy may be before it holds."""

SETTLED_S = 0.05
"""How long changed files have to stay as they are before they count."""

MAX_LOOKS = 20

HOLD_S = 12.0
"""How long calls wait for policies that have just broken; less than the attempts of the gate take together."""

_log = logging.getLogger(__name__)


class CedarPolicies:
    """Judges by the `*.cedar` files of a folder.

    A changed set that is broken holds calls for a moment, since it may be about to be mended, then denies everything.
    """

    is_embedded = True

    def __init__(
        self,
        folder: Path,
        surface: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        hold_s: float = HOLD_S,
    ) -> None:
        """Read and compile the folder.

        Raises:
            BrokenPolicies: One policy or more cannot be used.
        """
        self._folder, self._surface, self._clock = folder, surface, clock
        self._threads = Threads("cedar", 2)
        self._current: CedarSet | BrokenPolicies = compiled(policy_files(folder, surface))
        self._version = self._current.version
        self._look_at = clock() + LOOK_S
        self._hold_s = self._held_until = hold_s

    @property
    def version(self) -> str:
        """The digest of the files that hold now."""
        return self._version

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision of the files as they are now, or as they are once they are whole again."""
        await self._look_if_due()
        while isinstance(self._current, BrokenPolicies) and self._clock() < self._held_until:
            await asyncio.sleep(min(LOOK_S, self._hold_s) / 4)
            await self._look_if_due()
        if isinstance(self._current, CedarSet):
            return judged(self._current, proposal)
        told = str(self._current).replace(f"{self._folder.parent}/", "")  # where they lie is nothing for a model
        return Judgement(allowed=False, reason=f"the policies are broken: {told}", version=self._version)

    async def _look_if_due(self) -> None:
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_S
            await self._look()

    async def _look(self) -> None:
        try:
            files = await self._threads.run(self._settled)
        except BrokenPolicies as error:
            self._take(error, "")
            return
        version = version_of(files)
        if version != self._version:
            self._take(await self._threads.run(_compiled, files), version)

    def _settled(self) -> tuple[PolicyFile, ...]:
        """Return the files; changed ones once two looks agree: one that is half written may lack its `forbid`."""
        files = policy_files(self._folder, self._surface)
        if version_of(files) == self._version:
            return files
        for _ in range(MAX_LOOKS):
            time.sleep(SETTLED_S)
            before, files = files, policy_files(self._folder, self._surface)
            if files == before:
                return files
        problem = "its files change again and again"
        raise BrokenPolicies([Problem(str(self._folder), problem, "write them elsewhere and rename them")])

    def _take(self, found: CedarSet | BrokenPolicies, version: str) -> None:
        is_known = isinstance(found, BrokenPolicies) and str(found) == str(self._current)
        if isinstance(found, BrokenPolicies) and isinstance(self._current, CedarSet):
            self._held_until = self._clock() + self._hold_s
        self._current, self._version = found, version
        if isinstance(found, CedarSet):
            _log.warning("the policies have changed: %d policies, version %s", len(found.policies), version)
        elif not is_known:
            _log.error(
                "THE POLICIES ARE BROKEN: calls wait for %g s, then everything is denied until they are mended:\n%s",
                self._hold_s,
                found,
            )


def _compiled(files: tuple[PolicyFile, ...]) -> CedarSet | BrokenPolicies:
    try:
        return compiled(files)
    except BrokenPolicies as error:
        return error
