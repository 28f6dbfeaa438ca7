"""The public API for tests of agents (docs/testing.md). Each name is loaded on first use."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from orga.activities.ports import ModelError, ModelRequest
    from orga.client.testing.assertions import JournalCall, assert_called, assert_denied, calls_in
    from orga.client.testing.at_work import AtWork, NotEnded, Ran
    from orga.client.testing.environment import Environment, environment
    from orga.client.testing.fake_tools import (
        FakeTool,
        agent_input,
        forbids,
        orga_config,
        permanent,
        permits,
        policy_folder,
        transient,
    )
    from orga.client.testing.part_checks import (
        check_blob_store,
        check_critic,
        check_knowledge_store,
        check_model,
        check_policy,
        check_summarizer,
    )
    from orga.client.testing.replay import NoHistory, ReplayDiffers, journal_of, replay
    from orga.client.testing.script import ScriptedModel, ScriptExhausted, answers, calls, scripted, together
    from orga.workflows.types.models.usage import Usage

__all__ = [
    "AtWork",
    "Environment",
    "FakeTool",
    "JournalCall",
    "ModelError",
    "ModelRequest",
    "NoHistory",
    "NotEnded",
    "Ran",
    "ReplayDiffers",
    "ScriptExhausted",
    "ScriptedModel",
    "Usage",
    "agent_input",
    "answers",
    "assert_called",
    "assert_denied",
    "calls",
    "calls_in",
    "check_blob_store",
    "check_critic",
    "check_knowledge_store",
    "check_model",
    "check_policy",
    "check_summarizer",
    "environment",
    "forbids",
    "journal_of",
    "orga_config",
    "permanent",
    "permits",
    "policy_folder",
    "replay",
    "scripted",
    "together",
    "transient",
]

_PACKAGE = "orga.client.testing"
_NAMES_BY_MODULE = {
    "assertions": ("JournalCall", "assert_called", "assert_denied", "calls_in"),
    "at_work": ("AtWork", "NotEnded", "Ran"),
    "environment": ("Environment", "environment"),
    "fake_tools": (
        "FakeTool",
        "agent_input",
        "forbids",
        "orga_config",
        "permanent",
        "permits",
        "policy_folder",
        "transient",
    ),
    "part_checks": (
        "check_blob_store",
        "check_critic",
        "check_knowledge_store",
        "check_model",
        "check_policy",
        "check_summarizer",
    ),
    "replay": ("NoHistory", "ReplayDiffers", "journal_of", "replay"),
    "script": ("ScriptExhausted", "ScriptedModel", "answers", "calls", "scripted", "together"),
}
_MODULES = {name: f"{_PACKAGE}.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names} | {
    "ModelError": "orga.activities.ports",
    "ModelRequest": "orga.activities.ports",
    "Usage": "orga.workflows.types.models.usage",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(_MODULES[name], fromlist=[name]), name)


def __dir__() -> list[str]:
    return [*__all__]
