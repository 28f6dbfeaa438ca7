"""docs/telemetry.md names every existing span, attribute and metric, and no others."""

import re
from pathlib import Path

from orga.workflows.types import telemetry_names as names

PAGE = (Path(__file__).parents[3] / "docs" / "telemetry.md").read_text()
NAME = re.compile(r"`((?:gen_ai|orga|server|error)\.[a-z_.]+)`")


def test_the_page_names_exactly_what_is_exported() -> None:
    known = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
    exported = {value for value in known if NAME.fullmatch(f"`{value}`")}
    assert len(exported) > 40
    assert set(NAME.findall(PAGE)) == exported


def test_the_page_names_the_schema() -> None:
    assert names.SCHEMA_URL in PAGE
