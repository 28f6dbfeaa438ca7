"""The search attributes by which runs are listed; workflows write them, servers have to know them."""

from typing import Any

from temporalio.common import SearchAttributeKey

AGENT = SearchAttributeKey.for_keyword("OrgaAgent")
PHASE = SearchAttributeKey.for_keyword("OrgaPhase")
WAITING = SearchAttributeKey.for_keyword("OrgaWaiting")
TERMINATION = SearchAttributeKey.for_keyword("OrgaTermination")
TENANT = SearchAttributeKey.for_keyword("OrgaTenant")
ITERATION = SearchAttributeKey.for_int("OrgaIteration")
COST_USD = SearchAttributeKey.for_float("OrgaCostUsd")

KEYS: tuple[SearchAttributeKey[Any], ...] = (AGENT, PHASE, WAITING, TERMINATION, TENANT, ITERATION, COST_USD)
