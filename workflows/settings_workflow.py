"""The settings of a task queue as a workflow. Its history is the record of who changed what and when.

A save either completes in one workflow task, with the new version and the memo, or has no effect. Workers check a set
before it is saved, and again whenever they read it, because anybody with access to the server can write a memo.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError

from orga.workflows.decisions import settings
from orga.workflows.phases.control.handlers import first_argument
from orga.workflows.phases.control.run import event_time, history_length
from orga.workflows.types.names import CHECK_SETTINGS, SETTINGS_WORKFLOW
from orga.workflows.types.settings import SETTINGS_MEMO, CurrentSettings, SettingProblem, SettingsState

CHECK_S = 8.0
"""Seconds to check a set, including a second attempt."""


@workflow.defn(name=SETTINGS_WORKFLOW, sandboxed=False)
class SettingsWorkflow:
    """Holds the current set and the last versions."""

    @workflow.init
    def __init__(self, *given: Any) -> None:
        self._state = settings.initial_settings(first_argument(given) or {})
        self._is_full = False

    @workflow.run
    async def run(self, *given: Any) -> None:
        """Wait for updates. The workflow has no end of its own."""
        await workflow.wait_condition(lambda: self._is_full)
        await workflow.wait_condition(workflow.all_handlers_finished)
        current = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
        workflow.continue_as_new(args=[self._state], memo=_memo(self._state), initial_versioning_behavior=current)

    def _record_event(self) -> datetime:
        """Return the time of an update or a signal, and check the history's length. A replay gets the same values here.

        No other place asks for them: after a local activity, a replay could get other values.
        """
        length, state = history_length(), self._state
        self._is_full = length.events > state.full_events or length.size > state.full_bytes
        return event_time()

    @workflow.update
    async def save(self, *given: Any) -> int:
        """Save a whole set, and return its version.

        Raises:
            ApplicationError: `InvalidSettings` with a list of `{where, detail}`, or `StaleSettings`.
        """
        now = self._record_event()
        change = settings.parsed_change(first_argument(given))
        problems: list[SettingProblem] = await workflow.execute_local_activity(
            CHECK_SETTINGS,
            change.values,
            result_type=list[SettingProblem],
            schedule_to_close_timeout=timedelta(seconds=CHECK_S),
            retry_policy=RetryPolicy(maximum_attempts=2),
            summary=f"settings of {change.by}"[:100],
        )
        if problems:
            raise ApplicationError(settings.problems_text(problems), problems, type="InvalidSettings")
        try:
            settings.refuse_stale(self._state, change)  # another set may have been saved during the check
        except settings.StaleSettings as error:
            raise ApplicationError(str(error), type="StaleSettings") from None
        self._state = settings.with_change(self._state, change, now)
        workflow.upsert_memo(_memo(self._state))
        return self._state.version

    @save.validator
    def _validate_save(self, *given: Any) -> None:
        settings.refuse_stale(self._state, settings.parsed_change(first_argument(given)))

    @workflow.query
    def versions(self) -> SettingsState:
        """The last versions, oldest first, with their values."""
        return self._state

    @workflow.signal(dynamic=True)
    def ignore_signal(self, name: str, arguments: Sequence[RawValue]) -> None:
        """Take any signal, because the SDK would keep it in memory otherwise."""
        self._record_event()


def _memo(state: SettingsState) -> dict[str, Any]:
    if not state.versions:
        return {}
    return {SETTINGS_MEMO: CurrentSettings(version=state.version, values=state.values)}
