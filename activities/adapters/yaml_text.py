"""Reads YAML that anybody may have written. A separate process runs this module to turn YAML into JSON.

The reason for the process: the parser can crash on a deeply nested text, and aliases can unfold to any size.
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
"""Values of a document. Each reference repeats its values, because JSON has no references."""


async def read_yaml(data: bytes) -> Any:
    """Return the JSON values of a YAML document. Dates stay texts.

    Raises:
        ValueError: It is no YAML, or too complex.
    """
    output = await child_output(__name__, data, _TIMEOUT_S)
    if not output:
        raise ValueError("it is no valid YAML, or too complex to read")
    answer = json.loads(output)
    if "problem" in answer:
        raise ValueError(f"it is no valid YAML: {answer['problem']}")
    return answer["value"]


def _value_count(value: Any, known: dict[int, int]) -> int:
    """Return the number of values. `known` has those of lists and objects by id, because references repeat them."""
    if not (items := inner_values(value)):
        return 1
    if (value_id := id(value)) not in known:
        known[value_id] = 1 + sum(_value_count(item, known) for item in items)
    return known[value_id]


def main() -> None:
    """Read YAML from standard input, within limits, and write `{"value": …}` or `{"problem": …}`."""
    import yaml

    library: Any = yaml
    limit_this_process(_MEMORY_BYTES, _WORK_S)
    loader = library.CSafeLoader
    resolvers: dict[str, Any] = loader.yaml_implicit_resolvers
    for first, patterns in resolvers.items():
        resolvers[first] = [(tag, pattern) for tag, pattern in patterns if tag != "tag:yaml.org,2002:timestamp"]
    try:
        value = library.load(sys.stdin.buffer.read(), loader)
        is_small = _value_count(value, {}) <= _MAX_VALUES
        answer = {"value": value} if is_small else {"problem": f"it has more than {_MAX_VALUES:,} values"}
    except (library.YAMLError, UnicodeDecodeError) as error:
        answer = {"problem": " ".join(str(error).split())[:300]}
    sys.stdout.write(json.dumps(answer))
