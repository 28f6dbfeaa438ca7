"""Calls of the server's own API are repeated when a connection ends, as the SDK repeats its own calls.

A server ends every connection after some minutes (`frontend.keepAliveMaxConnectionAge`, 5 by default). A request at
that moment fails with `operation was canceled`, unless `retry=True` says that it may be sent again.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
SERVICES = {"workflow_service", "operator_service"}


def service_calls(file: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            service = node.func.value
            if isinstance(service, ast.Attribute) and service.attr in SERVICES:
                yield node


def test_each_call_of_a_service_is_repeated() -> None:
    found = [(file, call) for file in ROOT.joinpath("client").rglob("*.py") for call in service_calls(file)]
    once = [
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for file, call in found
        if all(each.arg != "retry" for each in call.keywords)
    ]

    assert len(found) > 5
    assert not once, "give these calls retry=True"
