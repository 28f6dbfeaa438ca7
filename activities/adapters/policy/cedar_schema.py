"""The Cedar schema that every policy is checked against, filled in with the arguments that the policy names."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path as File

import cedarpy

from orga.activities.adapters.policy.cedar_paths import Path
from orga.activities.adapters.policy.cedar_types import declared

SCHEMA = File(__file__).with_name("orga.cedarschema").read_text(encoding="utf-8")

_PREFIX = re.compile(r"^for policy `[^`]*`, ")
_ACTION = re.compile(r' for Action::"\w+"')
_OPTIONAL = re.compile(r"optional attribute `([^`]+)`")
_QUOTED = re.compile(r"`(?:[^`]*[.\"])?(\w+)\"?`")


def misfits(policy: str, types: Mapping[Path, str]) -> Iterator[tuple[str, str, str]]:
    """Yield what does not fit the schema: a word to find it by, the problem, the remedy."""
    schema = SCHEMA.replace("type Arguments = {};", f"type Arguments = {declared(types, 'arguments')};")
    schema = schema.replace("type Trusted = {};", f"type Trusted = {declared(types, 'trusted')};")
    found = cedarpy.validate_policies(policy, _parsed(schema))  # pyright: ignore[reportUnknownMemberType]
    told = sorted({_ACTION.sub("", _PREFIX.sub("", error.error)) for error in found.errors})
    for problem in told:
        quoted = _QUOTED.search(problem)
        yield quoted[1] if quoted else "", problem, _remedy(problem)
    if not found.validation_passed and not told:
        yield "", "it does not fit the schema", "`orga policy schema` shows what a policy can use"


@lru_cache(maxsize=256)
def _parsed(schema: str) -> cedarpy.Schema:
    return cedarpy.Schema.from_str(schema)


def _remedy(problem: str) -> str:
    optional = _OPTIONAL.search(problem)
    if optional is None:
        return "`orga policy schema` shows what a policy can use"
    above, _, name = f"context.{optional[1]}".rpartition(".")
    shown = name if name.isidentifier() else json.dumps(name)
    return f"it may be missing: write `{above} has {shown} && ...` before it"
