"""A server's unpinned tool definitions taint a run from its start."""

from typing import Any

import pytest

from orga.workflows.decisions.begin import with_unpinned_server_taint
from tests.support.values.core import a_setup, a_spec, a_state

DIGEST = "d" * 32


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        pytest.param([{"name": "read"}], (), id="a tool of our own"),
        pytest.param([{"name": "s_a", "digest": DIGEST, "pinned": True}], (), id="a pinned definition"),
        pytest.param([{"name": "s_a", "digest": DIGEST}], ("definitions of s",), id="an unpinned definition"),
        pytest.param(
            [{"name": f"s-1_{n}_x", "digest": DIGEST} for n in range(300)],
            ("definitions of s-1",),
            id="one server, once",
        ),
        pytest.param(
            [{"name": "s_a", "digest": DIGEST, "pinned": True}, {"name": "t_a", "digest": DIGEST}],
            ("definitions of t",),
            id="one of two",
        ),
        pytest.param(
            [{"name": "s_a", "digest": DIGEST, "trusted_output": True}],
            ("definitions of s",),
            id="trusted output does not matter",
        ),
    ],
)
def test_unpinned_definitions_taint_a_run(specs: list[dict[str, Any]], expected: tuple[str, ...]) -> None:
    state = a_state(setup=a_setup(*(a_spec(**spec) for spec in specs)))
    assert with_unpinned_server_taint(state).taint == expected


def test_existing_taint_is_kept() -> None:
    state = a_state(setup=a_setup(a_spec("s_a", digest=DIGEST)), taint=("fetch_url",))
    assert with_unpinned_server_taint(state).taint == ("fetch_url", "definitions of s")
