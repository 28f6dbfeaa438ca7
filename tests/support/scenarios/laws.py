"""Laws that hold for every run, whatever its model, its tools and people do."""

from collections import Counter
from itertools import groupby
from math import isclose
from typing import Any

from orga.workflows.decisions.recount import ContextFold, ResultRecount
from orga.workflows.types.conversation import messages_as_sent
from orga.workflows.types.messages import Message
from orga.workflows.types.models.usage import Usage, UsageTotals
from tests.support.scenarios.played import Played
from tests.support.scenarios.scenario import DENIED, HIDDEN, TERMINATE

WITHHELD = frozenset({"refusal", "content_filter"})
"""Finish reasons of replies whose calls are ignored."""

FAILED = frozenset({"failed", "cancelled"})

SPARE_S = 10.0
"""Seconds after the time limit of a run, for ending what is in flight on a loaded machine."""


def every_call_is_answered_once_right_after_it(played: Played) -> None:
    """Providers refuse anything else."""
    for seen in played.seen:
        messages = seen.request.messages
        assert (messages[0].role, messages[0].pinned) == ("user", True)
        place = 0
        while place < len(messages):
            calls = [call.call_id for call in messages[place].calls]
            results = messages[place + 1 : place + 1 + len(calls)]
            assert messages[place].role != "tool"
            assert [result.call_id for result in results] == calls
            place += 1 + len(calls)
        ids = [call.call_id for message in messages for call in message.calls]
        assert len(ids) == len(set(ids))


def each_reply_is_in_the_next_request(played: Played) -> None:
    """The next request contains the calls with their results. No compaction drops them."""
    proposed = {
        entry.iteration: [action["call_id"] for action in entry.data["actions"] if "call_id" in action]
        for entry in played.of("ReasoningComplete")
        if entry.data["finish"] not in WITHHELD
    }
    for seen in played.seen:
        calls = proposed.get(seen.iteration - 1, [])
        shown = [call.call_id for message in seen.request.messages for call in message.calls]
        assert shown[len(shown) - len(calls) :] == calls


def the_model_saw_what_the_history_contains(played: Played) -> None:
    """Another worker rebuilds the requests from the history."""
    fold, reported = ContextFold(), dict[int, list[tuple[Message, ...]]]()
    for happening in played.happened:
        if happening.kind == "started":
            fold = ContextFold()
        fold.feed(happening)
        if happening.kind == "scheduled" and happening.name == "reason":
            tools = fold.setup.tools if fold.setup else ()
            reported.setdefault(fold.iteration, []).append(messages_as_sent(fold.messages, tools))
    for iteration, seen in groupby(played.seen, key=lambda seen: seen.iteration):
        due = iter(reported[iteration])
        assert all(messages in due for messages, _ in groupby(each.request.messages for each in seen))


def only_offered_tools_are_shown_and_only_allowed_ones_run(played: Played) -> None:
    assert all(tool.name != HIDDEN for seen in played.seen for tool in seen.request.tools)
    assert (played.tools[DENIED].contexts, played.tools[HIDDEN].contexts) == ([], [])


def an_effect_that_cannot_be_undone_happens_once(played: Played) -> None:
    """Only a person may have it repeated."""
    wanted = Counter(wish for entry in played.of("ApprovalResolved") if (wish := entry.data["choice"]) == "retry")
    again = wanted["retry"] + sum(e.data["strategy"] == "requeue" for e in played.of("RecoveryTriggered"))
    for tool in played.tools.values():
        if tool.effect == "irreversible":
            repeated = Counter(context.idempotency_key for context in tool.contexts)
            assert sum(repeated.values()) - len(repeated) <= again


def a_key_belongs_to_one_call(played: Played) -> None:
    owners: dict[str, set[tuple[str, str]]] = {}
    for tool in played.tools.values():
        for context in tool.contexts:
            owners.setdefault(context.idempotency_key, set()).add((tool.name, context.call_id))
    assert all(len(owner) == 1 for owner in owners.values())


def no_more_tools_run_at_a_time_than_are_allowed(played: Played) -> None:
    if not any("slow" in plan.fates for plan in played.scenario.tools):  # an interrupted call may outlast its slot
        assert played.most_in_flight <= played.scenario.config["max_concurrent_tools"]


def the_result_counts_what_the_journal_records(played: Played) -> None:
    replies = played.of("ReasoningComplete")
    summaries = [entry.data for entry in played.of("ContextCompacted") if "usage" in entry.data]
    used = UsageTotals()
    for data in [*(entry.data for entry in replies), *summaries]:
        used = used.plus(Usage.model_validate(data["usage"]), data.get("cost_usd"))
    result = played.result
    assert result.iterations == len(replies)
    assert _without_cost(result.usage) == _without_cost(used)
    assert isclose(result.usage.cost_usd or 0.0, used.cost_usd or 0.0, abs_tol=1e-9)
    counts, (proposed, run, failed) = result.tool_calls, _counts(played)
    looked_up = _looked_up(played)
    assert counts.proposed in {proposed, proposed + looked_up}
    assert counts.run - run in range(looked_up + _ended_by_itself(played) + 1)
    assert counts.failed - failed in range(looked_up + 1)
    assert counts.run + counts.denied + counts.invalid + counts.not_run == counts.proposed


def the_result_counts_what_the_history_holds(played: Played) -> None:
    recount = ResultRecount()
    assert [fault for happening in played.happened for fault in recount.feed(happening)] == []


def no_budget_is_exceeded(played: Played) -> None:
    """Tokens and money may be exceeded by one reply, since nobody knows its cost in advance.

    Nothing else is exceeded.
    """
    result, limits = played.result, _limits(played)
    assert result.iterations <= limits.get("max_iterations", 25)
    assert result.usage.model_calls <= limits.get("max_model_calls", 10**9)
    assert result.tool_calls.run <= limits.get("max_tool_calls", 10**9) + _ended_by_itself(played)
    spent = [entry.data for entry in played.journal if "usage" in entry.data and entry.event != "Terminated"][:-1]
    tokens = sum(data["usage"]["input_tokens"] + data["usage"]["output_tokens"] for data in spent)
    assert not spent or tokens < limits.get("max_total_tokens", 100_000)
    cost = sum(data.get("cost_usd") or 0.0 for data in spent)
    assert not spent or cost < limits.get("max_cost_usd", 10**9)


def guidance_is_seen_in_the_order_of_its_arrival(played: Played) -> None:
    sent = [e.data["text"] for e in played.of("InterventionReceived") if e.data["kind"] in {"steer", "add_context"}]
    seen: list[str] = []
    for request in played.seen:
        for message in request.request.messages:
            text = message.text.rpartition("] ")[2].rpartition("]\n")[2]
            if message.role == "user" and text in sent and text not in seen:
                seen.append(text)
    assert seen == sent[: len(seen)]
    if played.result.termination.reason == "completed" and not played.result.termination.detail:
        assert seen == sent


def every_question_is_asked_once_and_closed_once(played: Played) -> None:
    asked = [entry.data["id"] for entry in played.of("ApprovalRequested")]
    assert len(asked) == len(set(asked))
    assert sorted(asked) == sorted(entry.data["id"] for entry in played.of("ApprovalResolved"))


def an_ending_has_its_cause(played: Played) -> None:
    received = {entry.data["kind"] for entry in played.of("InterventionReceived")}
    decided = {entry.data["choice"] for entry in played.of("ApprovalResolved")}
    reason, detail = played.result.termination.reason, played.result.termination.detail
    causes = {
        "aborted": "abort" in received | decided,
        "escalated": "abort" in decided,
        "policy_denial": any(entry.data.get("denied_count", 1) for entry in played.of("PolicyEvaluated")),
        "max_tokens": True,
        "max_cost": "max_cost_usd" in played.scenario.config,
        "max_iterations": "limit of" in detail,
        "timeout": "timeout_s" in played.scenario.config,
    }
    assert causes.get(reason, True)


def the_last_status_is_that_of_the_result(played: Played) -> None:
    status, result = played.status, played.result
    assert (status.phase, status.termination, status.waiting) == ("done", result.termination, [])
    assert (status.usage, status.tool_calls, status.iteration) == (result.usage, result.tool_calls, result.iterations)


def a_run_ends_within_its_time(played: Played) -> None:
    limit = max(_limits(played).get("timeout_s", 0), played.scenario.config.get("timeout_s", 300))
    assert played.result.duration_s <= limit + SPARE_S


LAWS = (
    every_call_is_answered_once_right_after_it,
    each_reply_is_in_the_next_request,
    the_model_saw_what_the_history_contains,
    only_offered_tools_are_shown_and_only_allowed_ones_run,
    an_effect_that_cannot_be_undone_happens_once,
    a_key_belongs_to_one_call,
    no_more_tools_run_at_a_time_than_are_allowed,
    the_result_counts_what_the_journal_records,
    the_result_counts_what_the_history_holds,
    no_budget_is_exceeded,
    guidance_is_seen_in_the_order_of_its_arrival,
    every_question_is_asked_once_and_closed_once,
    an_ending_has_its_cause,
    the_last_status_is_that_of_the_result,
    a_run_ends_within_its_time,
)


def _without_cost(usage: UsageTotals) -> dict[str, int]:
    return usage.model_dump(exclude={"cost_usd"})


def _limits(played: Played) -> dict[str, int | float]:
    """Return the final limits: those of the config with their extensions."""
    config = played.scenario.config
    limits: dict[str, float] = {name: value for name, value in config.items() if isinstance(value, (int, float))}
    for entry in played.of("InterventionReceived"):
        if entry.data["kind"] == "extend_budget":
            raised: dict[str, int | float] = entry.data["text"]
            limits |= {name: max(value, limits.get(name, 0)) for name, value in raised.items()}
    return limits


def _ended_by_itself(played: Played) -> int:
    """Return how often the model ended its run. That is an action of the loop and uses no tool call."""
    return sum(_is_ending(entry.data) for entry in played.of("ReasoningComplete"))


def _is_ending(reply: dict[str, Any]) -> bool:
    return any(action.get("tool") == TERMINATE for action in reply["actions"])


def _looked_up(played: Played) -> int:
    """Return the lookups before the first step. The journal records them by reference, not by call."""
    return sum(entry.data["resolved"] + entry.data["failed"] for entry in played.of("PreHydrationComplete"))


def _counts(played: Played) -> tuple[int, int, int]:
    """Return the numbers of proposed, run and failed calls in the journal.

    No activity runs for `terminate`, and the journal shows it as not run.
    """
    proposed, run, failed = 0, 0, 0
    recovered = {
        (entry.iteration, entry.data["call_id"])
        for entry in played.of("RecoveryTriggered")
        if entry.data["strategy"] != "requeue" and entry.data["outcome"] == "ok"
    }
    for entry in played.of("ReasoningComplete"):
        if entry.data["finish"] not in WITHHELD:
            proposed += sum("call_id" in action for action in entry.data["actions"])
            proposed += entry.data.get("left_out", {}).get("calls", 0)
    for entry in played.of("ObservationsCollected"):
        for outcome in entry.data["outcomes"]:
            is_ok = outcome["outcome"] == "ok" or (entry.iteration, outcome["call_id"]) in recovered
            run += is_ok or outcome["outcome"] != "not_run"
            failed += not is_ok and outcome["outcome"] != "not_run"
    for entry in played.of("RecoveryTriggered"):
        made = [call["outcome"] for call in entry.data.get("calls", [])]
        proposed += len(made)
        run += sum(outcome in {"ok", *FAILED} for outcome in made)
        failed += sum(outcome in FAILED for outcome in made)
        failed += entry.data["strategy"] == "requeue" and entry.data["outcome"] in FAILED
    return proposed, run, failed
