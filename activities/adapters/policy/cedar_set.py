"""A compiled set of Cedar policies: one broken policy refuses them all."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import cedarpy

from orga.activities.adapters.policy.cedar_files import PolicyFile, files_version
from orga.activities.adapters.policy.cedar_policy import CedarPolicy, parse_policy, split_statements
from orga.activities.adapters.policy.cedar_values import WantedValue, wanted_value
from orga.activities.adapters.policy.problems import BrokenPolicies
from orga.activities.adapters.problem import Problem

MAX_READ_S = 10.0
"""Of processor time for all policies; a thousand ordinary ones take half a second."""


@dataclass(frozen=True)
class CedarSet:
    """Policies that a request can be put to."""

    policies: Mapping[str, CedarPolicy]
    """By id, in the order of the files."""
    version: str
    all_of_them: cedarpy.PolicySet
    without_liftable: cedarpy.PolicySet
    """Without what a person may lift: forbids that have `@approval`."""
    wanted: WantedValue
    """The arguments and trusted facts that some policy names: no others are handed over."""


def compiled(files: tuple[PolicyFile, ...]) -> CedarSet:
    """Return the set.

    Raises:
        BrokenPolicies: With every problem of every file.
    """
    policies, problems = read_policies(files)
    if problems:
        raise BrokenPolicies(problems)
    return CedarSet(
        policies={policy.policy_id: policy for policy in policies},
        version=files_version(files),
        all_of_them=_policy_set(policies),
        without_liftable=_policy_set(policy for policy in policies if not is_liftable(policy)),
        wanted=wanted_value(item for policy in policies for item in policy.types.items()),
    )


def read_policies(files: tuple[PolicyFile, ...]) -> tuple[list[CedarPolicy], list[Problem]]:
    """Return the active policies and all that is wrong."""
    policies: list[CedarPolicy] = []
    problems: list[Problem] = []
    until = time.thread_time() + MAX_READ_S
    for file in files:
        try:
            text = file.content.decode()
        except UnicodeDecodeError as error:
            problems.append(Problem(file.shown, f"byte {error.start} is not UTF-8", "save it as UTF-8"))
            continue
        for statement in split_statements(text, file.shown):
            if time.thread_time() > until:
                problem = f"reading the policies up to here took {MAX_READ_S:g} s of processor time"
                return policies, [*problems, Problem(statement.place, problem, "remove policies, or make them simpler")]
            try:
                found = parse_policy(statement)
            except BrokenPolicies as error:
                problems += error.problems
                continue
            policies += [found] if found else []
    return policies, [*problems, *_duplicate_problems(policies)]


def is_liftable(policy: CedarPolicy) -> bool:
    """Tell whether a person may lift what the policy forbids."""
    return policy.is_forbid and policy.says.approval is not None


def _policy_set(policies: Iterable[CedarPolicy]) -> cedarpy.PolicySet:
    nodes = {policy.policy_id: policy.node for policy in policies}
    return cedarpy.PolicySet.from_json_str(json.dumps({"staticPolicies": nodes, "templates": {}, "templateLinks": []}))


def _duplicate_problems(policies: Iterable[CedarPolicy]) -> Iterator[Problem]:
    seen: dict[str, CedarPolicy] = {}
    for policy in policies:
        first = seen.setdefault(policy.policy_id, policy)
        if first is not policy:
            problem = f"the id {policy.policy_id!r} is taken by {first.statement.place}"
            yield Problem(policy.statement.place_of("@id"), problem, "give each policy an id of its own")
