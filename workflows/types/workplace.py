"""The folder and the policy that a run was started for, as the run's memo holds them."""

from collections.abc import Callable
from typing import Any, Self

from pydantic import ValidationError

from orga.workflows.types.record import Record, replace_fields

WORKPLACE_MEMO = "orga_folder"
"""The memo key of the `Workplace` of a run on the embedded server. The client that starts it sets it."""

POLICY_MEMO = "orga_policy"
"""The memo key of the folder's policy, as `policy_text` returns it. A worker prepares no run of another policy."""


class Workplace(Record):
    """A folder with its configuration."""

    folder: str
    root: str
    """The folder that file tools cannot leave, with links resolved."""
    config: str | None = None
    digest: str = ""
    """Digest of the configuration file's content."""
    mark: str = ""
    """Short digest of the root. The folder's task queue on the embedded server is named after it."""
    models: str = ""
    """Short digest of the environment's settings for models. If it is "", any worker of the folder can take the run."""
    variables: tuple[str, ...] = ()
    """The names of the environment variables with these settings."""

    def with_models(self, digest: str, variables: tuple[str, ...]) -> Self:
        """Return the workplace for a shell whose environment chooses models."""
        return replace_fields(self, {"models": digest, "variables": variables})


MAX_POLICY_CHARS = 100


def workplace_of(value: Any) -> Workplace | None:
    """Return the workplace in a memo. None if it is invalid, which is possible because any starter can write a memo."""
    try:
        return None if value is None else Workplace.model_validate(value)
    except ValidationError:
        return None


def policy_of(value: Any) -> str:
    """Return the policy in a memo, or "" if it is invalid."""
    return value if isinstance(value, str) and len(value) <= MAX_POLICY_CHARS else ""


def workplace_in_memo(memo: Callable[[str, Any], Any]) -> Workplace | None:
    """Return the workplace in the run's memo, or None if it cannot be read. `memo` is `workflow.memo_value`."""
    try:
        return workplace_of(memo(WORKPLACE_MEMO, None))
    except Exception:  # a payload of any kind is possible, and an error here would block the run for ever
        return None


def inherited_memo(memo: Callable[[str, Any], Any]) -> dict[str, Any] | None:
    """Return the memo for a run that this one starts, so that people find both under the same folder."""
    return run_memo(workplace_in_memo(memo), policy_in_memo(memo)) or None


def run_memo(workplace: Workplace | None, policy: str) -> dict[str, Any]:
    """Return the memo of a run for a workplace and a policy. None and "" are left out."""
    memo = {} if workplace is None else {WORKPLACE_MEMO: workplace.model_dump(mode="json")}
    return {**memo, POLICY_MEMO: policy} if policy else memo


def policy_in_memo(memo: Callable[[str, Any], Any]) -> str:
    """Return the policy in the run's memo, or "" if it cannot be read. `memo` is `workflow.memo_value`."""
    try:
        return policy_of(memo(POLICY_MEMO, ""))
    except Exception:  # as in `workplace_in_memo`
        return ""
