"""The search attributes by which runs are listed; workflows write them, servers have to know them."""

from typing import Any

from temporalio.common import SearchAttributeKey

AGENT = SearchAttributeKey.for_keyword("OrgaAgent")
PHASE = SearchAttributeKey.for_keyword("OrgaPhase")
WAITING = SearchAttributeKey.for_keyword("OrgaWaiting")
WAITING_SINCE = SearchAttributeKey.for_datetime("OrgaWaitingSince")
"""When the oldest question that is open was asked."""
TERMINATION = SearchAttributeKey.for_keyword("OrgaTermination")
TENANT = SearchAttributeKey.for_keyword("OrgaTenant")
ITERATION = SearchAttributeKey.for_int("OrgaIteration")
COST_USD = SearchAttributeKey.for_float("OrgaCostUsd")
DEAD_LETTERS = SearchAttributeKey.for_int("OrgaDeadLetters")
"""Calls that were given up and not sent again."""
OPEN_CIRCUITS = SearchAttributeKey.for_keyword_list("OrgaOpenCircuits")
"""Tools whose circuit is open in the run."""

KEYS: tuple[SearchAttributeKey[Any], ...] = (
    AGENT,
    PHASE,
    WAITING,
    WAITING_SINCE,
    TERMINATION,
    TENANT,
    ITERATION,
    COST_USD,
    DEAD_LETTERS,
    OPEN_CIRCUITS,
)
