"""Reads YAML that anybody may have written. As a program, it reads YAML and writes JSON.

The parser can crash on a deeply nested text, and aliases can unfold to any size, so a process of its own does it.
"""

import json
import sys
from typing import Any

from orga.activities.adapters.process_streams import child_output, limit_this_process
from orga.workflows.types.json_text import inner_values

_TIMEOUT_S = 60.0
_WORK_S = 20.0
"""Seconds of processor time."""

_MEMORY_BYTES = 2_000_000_000

_MAX_VALUES = 5_000_000
"""Values of a document, with all repetitions by reference. JSON has no references."""


async def read_yaml(data: bytes) -> Any:
    """Return the JSON values of a YAML document. Dates stay texts.

    Raises:
        ValueError: It is no YAML, or too complex.
    """
    output = await child_output(__name__, data, _TIMEOUT_S)
    if not output:
        raise ValueError("it is no valid YAML, or too complex to read")
    found = json.loads(output)
    if "problem" in found:
        raise ValueError(f"it is no valid YAML: {found['problem']}")
    return found["value"]


def _size(value: Any, known: dict[int, int]) -> int:
    """Return the number of values. `known` has those of lists and objects by id, because references repeat them."""
    if not (parts := inner_values(value)):
        return 1
    if (place := id(value)) not in known:
        known[place] = 1 + sum(_size(each, known) for each in parts)
    return known[place]


def main() -> None:
    """Read YAML from standard input, within limits."""
    import yaml

    library: Any = yaml
    limit_this_process(_MEMORY_BYTES, _WORK_S)
    loader = library.CSafeLoader
    resolvers: dict[str, Any] = loader.yaml_implicit_resolvers
    for first, known in resolvers.items():
        resolvers[first] = [each for each in known if each[0] != "tag:yaml.org,2002:timestamp"]
    try:
        value = library.load(sys.stdin.buffer.read(), loader)
        is_small = _size(value, {}) <= _MAX_VALUES
        found = {"value": value} if is_small else {"problem": f"it has more than {_MAX_VALUES:,} values"}
    except (library.YAMLError, UnicodeDecodeError) as error:
        found = {"problem": " ".join(str(error).split())[:300]}
    sys.stdout.write(json.dumps(found))
