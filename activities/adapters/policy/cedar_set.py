"""A compiled set of Cedar policies. One broken policy makes the whole set invalid."""

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
"""Seconds of processor time for all policies. A thousand ordinary ones take half a second."""


@dataclass(frozen=True)
class CedarSet:
    """Policies that can judge a request."""

    policies: Mapping[str, CedarPolicy]
    """Policies by id, in the order of the files."""
    version: str
    all_of_them: cedarpy.PolicySet
    without_liftable: cedarpy.PolicySet
    """The policies without those that a person may lift: forbids with `@approval`."""
    wanted: WantedValue
    """The arguments and trusted facts that any policy names. No others are passed to Cedar."""


def compile_policies(files: tuple[PolicyFile, ...]) -> CedarSet:
    """Return the compiled set.

    Raises:
        BrokenPolicies: The error has all problems of all files.
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
    """Return the active policies and all problems."""
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
    """Return whether a person may lift the policy's prohibition."""
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
            yield Problem(policy.statement.place_of_text("@id"), problem, "give each policy an id of its own")
