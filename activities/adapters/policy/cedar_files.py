"""Reads and compiles the Cedar files of a policy folder: first the shared ones, then those of one surface."""

import json
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import cedarpy

from orga.activities.adapters.policy.cedar_policy import CedarPolicy, parse_policy, split_statements
from orga.activities.adapters.policy.cedar_values import WantedValue, wanted_value
from orga.activities.adapters.problem import BrokenPolicies, Problem

SUFFIX = ".cedar"
VERSION_CHARS = 12

MAX_FILES = 1_000
"""Files of all folders together. They are read once a second."""

MAX_BYTES = 1_000_000
"""Bytes of all files together."""


@dataclass(frozen=True)
class PolicyFile:
    """A file with policies."""

    name: str
    """The file's path in the folder."""
    shown: str
    """The file's path as people see it."""
    content: bytes


def policy_files(folder: Path, surface: str | None = None) -> tuple[PolicyFile, ...]:
    """Return the files in the order of their names, the shared ones first. Hidden files belong to editors.

    Raises:
        BrokenPolicies: A folder or a file cannot be read, so its `forbid` rules would be lost.
    """
    found = [path for there in (folder, *([folder / surface] if surface else [])) for path in _policy_paths(there)]
    if len(found) > MAX_FILES:
        problem = f"there are {len(found):,} policy files; at most {MAX_FILES:,} are allowed"
        raise BrokenPolicies([Problem(str(folder), problem, "put several policies into one file")])
    files: list[PolicyFile] = []
    left = MAX_BYTES
    for path in found:
        files.append(_read_file(path, folder, left))
        left -= len(files[-1].content)
    return tuple(files)


def files_version(files: tuple[PolicyFile, ...]) -> str:
    """Return a short digest of all names and contents."""
    digest = sha256()
    for file in files:
        digest.update(f"{file.name}\0{len(file.content)}\0".encode(errors="surrogateescape"))
        digest.update(file.content)
    return digest.hexdigest()[:VERSION_CHARS]


def _policy_paths(there: Path) -> list[Path]:
    if not there.is_dir():
        raise BrokenPolicies([Problem(str(there), "there is no such folder", "create it, or correct [policy]")])
    try:
        return sorted(path for path in there.iterdir() if _is_policy_name(path.name))
    except OSError as error:
        raise _unreadable_error(there, error.strerror) from error


def _is_policy_name(name: str) -> bool:
    return name.lower().endswith(SUFFIX) and not name.startswith(".")


def _read_file(path: Path, root: Path, most: int) -> PolicyFile:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block for ever
            raise _unreadable_error(path, "it is no file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise _unreadable_error(path, error.strerror) from error
    if len(content) > most:
        problem = f"the policy files have more than {MAX_BYTES:,} bytes together"
        raise BrokenPolicies([Problem(str(path), problem, "remove policies, or write them shorter")])
    name = path.relative_to(root)
    return PolicyFile(str(name), str(root.name / name), content)


def _unreadable_error(path: Path, why: str | None) -> BrokenPolicies:
    remedy = "make it a readable file, or remove it"
    return BrokenPolicies([Problem(str(path), f"cannot be read ({why})", remedy)])


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
