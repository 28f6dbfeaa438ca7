"""Arguments of a call against a tool's JSON Schema."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from orga.activities.adapters.schemas.arguments import argument_errors


@pytest.mark.parametrize(
    ("schema", "arguments", "expected"),
    [
        pytest.param({}, {"any": "thing"}, [], id="no schema, no errors"),
        pytest.param(
            {"required": ["a", "b"]},
            {},
            ['$: "a" is a required property', '$: "b" is a required property'],
            id="all errors",
        ),
        pytest.param(
            {"properties": {"list": {"items": {"properties": {"n": {"type": "integer"}}}}}},
            {"list": [{"n": 1}, {"n": "x"}]},
            ['$.list[1].n: "x" is not of type "integer"'],
            id="the path is named",
        ),
        pytest.param(
            {"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"maximum": 3}}},
            {"n": 4},
            ["$.n: 4 is greater than the maximum of 3"],
            id="a reference within the schema",
        ),
        pytest.param({"properties": {"s": {"pattern": "^a+$"}}}, {"s": "aa"}, [], id="a pattern"),
        pytest.param({"$schema": "http://json-schema.org/draft-07/schema#"}, {}, [], id="an older draft is named"),
        pytest.param({}, {"s": "\ud800"}, ["$: contains text that is not valid Unicode"], id="a lone surrogate"),
        pytest.param({"properties": {"n": {"type": "integer"}}}, {"n": 10**400}, [], id="a huge number"),
        pytest.param({"$ref": "#"}, {}, [], id="a reference to itself"),
    ],
)
def test_arguments_are_validated_against_the_schema(
    schema: dict[str, Any], arguments: dict[str, Any], expected: list[str]
) -> None:
    assert argument_errors(schema, arguments) == expected


@pytest.mark.parametrize(
    ("schema", "fits", "fits_not"),
    [
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [True], "additionalItems": False},
            [None], [None, 2], id="places in a list, of draft 7"),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema", "dependencies": {"a": ["b"]}},
            {"b": 1}, {"a": 1}, id="dependencies, which take a process"),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
            2, 1, id="an exclusive bound, of draft 4"),
        pytest.param(
            {"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "integer"}]},
            [1], ["a"], id="of 2019-09"),
        pytest.param({"$schema": "https://example.com/own", "prefixItems": [{"type": "integer"}]},
            [1], ["a"], id="an unknown dialect counts as 2020-12"),
        pytest.param({"prefixItems": [{"type": "integer"}]}, [1], ["a"], id="no dialect counts as 2020-12"),
    ],
)  # fmt: skip
def test_a_schema_is_read_by_the_draft_that_it_names(schema: dict[str, Any], fits: Any, fits_not: Any) -> None:
    assert argument_errors(schema, fits) == []
    assert argument_errors(schema, fits_not) != []


def test_errors_are_bounded() -> None:
    arguments = {f"k{n}": "x" * 5_000 for n in range(500)}
    errors = argument_errors({"additionalProperties": {"type": "integer"}}, arguments)
    assert len(errors) == 10
    assert max(map(len, errors)) == 200


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "objct"}, id="unknown type"),
        pytest.param({"properties": 3}, id="properties is no object"),
        pytest.param({"$ref": "#/$defs/none"}, id="dangling reference"),
        pytest.param({"pattern": "("}, id="broken pattern"),
        pytest.param({"pattern": "^(?!a)"}, id="look-around"),
        pytest.param({"pattern": "(a)\\1"}, id="back-reference"),
        pytest.param({"pattern": "((a{1,1000}){1,1000}){1,1000}"}, id="a pattern that explodes"),
        pytest.param({"$ref": "file:///etc/passwd"}, id="a file"),
    ],
)
def test_a_broken_schema_is_distinguished_from_invalid_arguments(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="schema is invalid") as caught:
        argument_errors(schema, {})
    assert len(str(caught.value)) <= 200


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(a?){50}a{50}$", "(.*a){20}"])
def test_no_pattern_hangs(pattern: str) -> None:
    started = time.monotonic()
    argument_errors({"properties": {"s": {"pattern": pattern}}}, {"s": "a" * 50_000 + "!"})
    assert time.monotonic() - started < 10


@pytest.fixture(name="visited")
def a_server_that_records_requests() -> Iterator[tuple[str, list[str]]]:
    visits: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visits.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", visits
        server.shutdown()


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"$ref": "URL/a"}, id="reference"),
        pytest.param({"properties": {"a": {"$ref": "URL/a#/x"}}}, id="nested reference"),
        pytest.param({"$dynamicRef": "URL/a"}, id="dynamic reference"),
        pytest.param({"$id": "URL/base", "properties": {"a": {"$ref": "a"}}}, id="reference relative to an id"),
        pytest.param({"$schema": "URL/a"}, id="dialect"),
    ],
)
def test_a_schema_never_causes_a_request(schema: dict[str, Any], visited: tuple[str, list[str]]) -> None:
    url, visits = visited
    at_server = json.loads(json.dumps(schema).replace("URL", url))
    with suppress(ValueError):
        argument_errors(at_server, {"a": 1})
    assert visits == []
