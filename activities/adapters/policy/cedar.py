"""The Cedar engine: policies of a folder, compiled once and again when a file changes."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from activities.adapters.policy.cedar_files import PolicyFile, policy_files, version_of
from activities.adapters.policy.cedar_judgement import judged
from activities.adapters.policy.cedar_set import CedarSet, compiled
from activities.adapters.policy.problems import BrokenPolicies, PolicyProblem
from activities.ports import Judgement, Proposal

LOOK_S = 1.0
"""How old a change of a policy may be before it holds."""

SETTLED_S = 0.05
"""How long changed files have to stay as they are before they count."""

MAX_LOOKS = 20

_log = logging.getLogger(__name__)


class CedarPolicies:
    """Judges by the `*.cedar` files of a folder. A changed set that is broken denies everything until it is mended."""

    is_embedded = True

    def __init__(
        self, folder: Path, surface: str | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read and compile the folder.

        Raises:
            BrokenPolicies: One policy or more cannot be used.
        """
        self._folder, self._surface, self._clock = folder, surface, clock
        self._current: CedarSet | BrokenPolicies = compiled(policy_files(folder, surface))
        self._version = self._current.version
        self._look_at = clock() + LOOK_S

    @property
    def version(self) -> str:
        """The digest of the files that hold now."""
        return self._version

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision of the files as they are now."""
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_S
            await self._look()
        current = self._current
        if isinstance(current, CedarSet):
            return judged(current, proposal)
        return Judgement(allowed=False, reason=f"the policies are broken: {current}", version=self._version)

    async def _look(self) -> None:
        try:
            files = await asyncio.to_thread(self._settled)
        except BrokenPolicies as error:
            self._take(error, "")
            return
        version = version_of(files)
        if version != self._version:
            self._take(await asyncio.to_thread(_compiled, files), version)

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
        raise BrokenPolicies([PolicyProblem(str(self._folder), problem, "write them elsewhere and rename them")])

    def _take(self, found: CedarSet | BrokenPolicies, version: str) -> None:
        is_known = isinstance(found, BrokenPolicies) and str(found) == str(self._current)
        self._current, self._version = found, version
        if isinstance(found, CedarSet):
            _log.warning("the policies have changed: %d policies, version %s", len(found.policies), version)
        elif not is_known:
            _log.error("THE POLICIES ARE BROKEN, everything is denied until they are mended:\n%s", found)


def _compiled(files: tuple[PolicyFile, ...]) -> CedarSet | BrokenPolicies:
    try:
        return compiled(files)
    except BrokenPolicies as error:
        return error
