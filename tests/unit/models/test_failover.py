"""Failover within a model call: which errors cause it, which model is next, and what is recorded."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.circuits import GuardedModels, WorkerBreakers
from orga.activities.models.conversations import Conversations
from orga.activities.ports import ModelError, ModelProvider
from orga.activities.reason import ReasonActivities
from orga.activities.text.secrets import KnownSecrets
from orga.client.testing.script import Step
from orga.testing import ScriptedModel, answers
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.tiers import RUN_TIER, FailedOver, Tier
from orga.workflows.types.parts import ThinkingPart
from orga.workflows.types.setup import Setup
from orga.workflows.types.status import Happening
from tests.support.runs.circuits import OPTIONS, Clock, clock, shared
from tests.support.tools.activities import Beats, NoHistory
from tests.support.values.core import T0, a_request, a_setup, user

__all__ = ["clock", "shared"]

UNPAID = ModelError("OutOfQuota", "acme answered 402: the key sk-0123456789abcdef has no credit", retryable=False)
DOWN = ModelError("ServerError", "acme answered 500", retryable=True)
BUSY = ModelError("RateLimited", "acme answered 429", retryable=True, retry_after_s=7.0)
AWAY = ModelError("CircuitOpen", "provider:acme is left alone", retryable=True, retry_after_s=20.0)

SECRETS = KnownSecrets.from_values(["sk-0123456789abcdef"])


class NamedModels:
    """A provider for each name. Any other name is not configured."""

    def __init__(self, **steps: Step) -> None:
        self.providers = {name: ScriptedModel([step], repeats=True) for name, step in steps.items()}

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the provider of that name."""
        provider, _, model = name.partition(":")
        if provider not in self.providers:
            raise ValueError(f"{provider} has no key")
        return self.providers[provider], model

    @property
    def asked(self) -> dict[str, int]:
        """Return the number of requests for each provider."""
        return {name: len(each.seen) for name, each in self.providers.items()}


def tiered(*models: str) -> Setup:
    return a_setup(model=models[0], tiers={RUN_TIER: Tier(name="heavy", models=models)})


async def reply_of(models: Any, *names: str, messages: tuple[Message, ...] = (), **info: Any) -> Reply:
    setup, conversations = tiered(*names), Conversations(NoHistory())
    conversations.keep_setup(setup)
    reason = ReasonActivities(models, conversations, SECRETS).reason
    return await Beats(**info).run(reason, a_request((user("task", pinned=True), *messages), setup))


async def failure_of(models: Any, *names: str, **info: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await reply_of(models, *names, **info)
    return caught.value


@pytest.mark.parametrize(
    "reason", [pytest.param(UNPAID, id="out of quota"), pytest.param(AWAY, id="its circuit is open")]
)
async def test_the_next_model_of_the_tier_is_asked(reason: ModelError) -> None:
    models = NamedModels(a=reason, b=answers("from b", cost_usd=0.5))
    reply = await reply_of(models, "a:one", "b:two")
    assert (reply.text, reply.model, reply.cost_usd) == ("from b", "b:two", 0.5)
    assert [(each.before, each.after) for each in reply.failed_over] == [("a:one", "b:two")]
    assert reply.failed_over[0].why.startswith(f"{reason.kind}: ")


async def test_the_reply_records_the_provider_and_the_name_that_it_returns() -> None:
    reply = await reply_of(NamedModels(a=UNPAID, b=answers(model="two-2026-11-01")), "a:one", "b:two")
    assert reply.model == "b:two-2026-11-01"


async def test_each_failover_is_recorded_without_secrets() -> None:
    reply = await reply_of(NamedModels(a=UNPAID, c=answers()), "a:one", "b:no-key", "c:three")
    assert [(each.before, each.after) for each in reply.failed_over] == [("a:one", "b:no-key"), ("b:no-key", "c:three")]
    assert "ModelNotConfigured: b has no key" in reply.failed_over[1].why
    assert "sk-0123456789abcdef" not in reply.model_dump_json()


@pytest.mark.parametrize("error", [DOWN, BUSY], ids=["a server error", "a rate limit"])
async def test_a_temporary_error_is_retried_with_the_same_model(error: ModelError) -> None:
    models = NamedModels(a=error, b=answers())
    failure = await failure_of(models, "a:one", "b:two")
    assert (failure.type, failure.non_retryable, models.asked["b"]) == (error.kind, False, 0)
    assert failure.message == str(error)


GONE = ModelError("ModelNotFound", "acme answered 404: the model one was retired", retryable=False)
LONG = ModelError("ContextOverflow", "acme answered 400: too long", retryable=False)
FULL = ModelError("Overloaded", "acme answered 529", retryable=True)


@pytest.mark.parametrize(
    ("error", "info"),
    [
        pytest.param(GONE, {}, id="a model that the provider no longer has"),
        pytest.param(LONG, {}, id="a context that a larger window may hold"),
        pytest.param(FULL, {"attempt": 3}, id="an overload for two attempts"),
        pytest.param(BUSY, {"attempt": 3}, id="a rate limit for two attempts"),
        pytest.param(BUSY, {"left_s": 8.0}, id="a wait that is longer than the time left"),
    ],
)
async def test_a_failure_that_waiting_does_not_cure_causes_failover(error: ModelError, info: dict[str, Any]) -> None:
    models = NamedModels(a=error, b=answers("from b", cost_usd=0.5))
    reply = await reply_of(models, "a:one", "b:two", **info)
    assert (reply.text, reply.cost_usd) == ("from b", 0.5)
    assert reply.failed_over[0].why.startswith(f"{error.kind}: ")


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_short_overload_is_waited_for(attempt: int) -> None:
    models = NamedModels(a=FULL, b=answers())
    failure = await failure_of(models, "a:one", "b:two", attempt=attempt)
    assert (failure.type, models.asked["b"]) == ("Overloaded", 0)


@pytest.mark.parametrize("other", [GONE, UNPAID], ids=["another that is gone", "another without credit"])
async def test_a_context_that_no_model_holds_is_shortened(other: ModelError) -> None:
    """Without the failover the run would have sent a shorter context."""
    failure = await failure_of(NamedModels(a=LONG, b=other), "a:one", "b:two")
    assert (failure.type, failure.non_retryable) == ("ContextOverflow", True)


async def test_a_context_that_one_model_holds_is_sent_to_it_again() -> None:
    failure = await failure_of(NamedModels(a=LONG, b=DOWN), "a:one", "b:two")
    assert (failure.type, failure.non_retryable) == ("ServerError", False)


async def test_a_reply_without_failover_records_none() -> None:
    reply = await reply_of(NamedModels(a=answers(), b=answers()), "a:one", "b:two")
    assert "failed_over" not in reply.model_dump(exclude_unset=True)
    assert reply.model is None


@pytest.mark.parametrize(
    ("last", "kind", "final", "delay_s"),
    [
        pytest.param(UNPAID, "OutOfQuota", False, 20, id="the circuit of the first may close"),
        pytest.param(DOWN, "ServerError", False, None, id="the last error may be temporary"),
        pytest.param(BUSY, "RateLimited", False, 7, id="the shortest wait counts"),
        pytest.param(
            ModelError("ModelNotFound", "no such model", retryable=False), "ModelNotFound", False, 20, id="404"
        ),
        pytest.param(
            ModelError("ContextOverflow", "too long", retryable=False),
            "ContextOverflow",
            True,
            None,
            id="too long for it",
        ),
    ],
)
async def test_if_all_models_fail_the_last_error_names_each(
    last: ModelError, kind: str, final: bool, delay_s: float | None
) -> None:
    failure = await failure_of(NamedModels(a=AWAY, b=last), "a:one", "b:two")
    assert (failure.type, failure.non_retryable) == (kind, final)
    assert failure.next_retry_delay == (None if delay_s is None else timedelta(seconds=delay_s))
    assert "; models tried, in order: a:one (CircuitOpen: provider:acme is left alone), b:two (" in failure.message
    assert "sk-0123456789abcdef" not in failure.message


async def test_a_tier_without_quota_is_not_asked_again() -> None:
    failure = await failure_of(NamedModels(a=UNPAID, b=UNPAID), "a:one", "b:two")
    assert (failure.type, failure.non_retryable) == ("OutOfQuota", True)


async def test_an_open_circuit_causes_failover(shared: WorkerBreakers, clock: Clock) -> None:
    """Three failed attempts open the circuit. The fourth attempt goes to the next model, which has its own circuit."""
    named = NamedModels(a=DOWN, b=answers("from b"))
    models = GuardedModels(named, shared, OPTIONS)
    for _ in range(3):
        assert (await failure_of(models, "a:one", "b:two")).type == "ServerError"
    assert (await reply_of(models, "a:one", "b:two")).text == "from b"
    assert named.asked == {"a": 3, "b": 1}


def thinking(author: str = "") -> ThinkingPart:
    part = ThinkingPart(kind="thinking", format="thinking", text="hm", data={"signature": "s"})
    return part.with_author(author) if author else part


async def test_thinking_records_its_model_if_the_tier_has_several() -> None:
    reply = await reply_of(NamedModels(a=UNPAID, b=answers(blocks=(thinking(),))), "a:one", "b:two")
    assert [block.author for block in reply.blocks] == ["b:two"]


async def test_no_model_is_sent_the_thinking_of_another() -> None:
    """The other model's signature would be refused."""
    past = tuple(Message.of("assistant", "said", blocks=(thinking(who),)) for who in ("a:one", "b:two", ""))
    models = NamedModels(a=UNPAID, b=answers())
    await reply_of(models, "a:one", "b:two", messages=past)
    sent = {name: models.providers[name].seen[0].messages[1:] for name in ("a", "b")}
    authors = {name: [block.author for message in all_ for block in message.blocks] for name, all_ in sent.items()}
    assert authors == {"a": ["a:one", ""], "b": ["b:two", ""]}


def test_the_journal_records_the_failover_before_the_reply() -> None:
    gave_way = FailedOver(before="a:one", after="b:two", why="OutOfQuota: no credit")
    reply = answers("done", model="b:two", failed_over=(gave_way,)).model_dump(mode="json", exclude_unset=True)
    fold = JournalFold()
    fold.feed(Happening("started", T0, 1, value=[{"task": "t"}]))
    for name in ("critique", "summarise"):
        [entry] = fold.feed(Happening("finished", T0, 2, name=name, key="1", value=reply))
        assert (entry.event, entry.data["from"]) == ("ModelFailedOver", "a:one")
    reported = fold.feed(Happening("finished", T0, 3, name="reason", key="1", value=reply))
    assert [entry.event for entry in reported] == ["ModelFailedOver", "ReasoningComplete"]
    assert reported[0].data == {"from": "a:one", "to": "b:two", "why": "OutOfQuota: no credit"}
