"""Known secrets: which variables hold them, in which shapes they are found, what is left alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.known_secrets import HIDDEN, NO_SECRETS, KnownSecrets
from workflows.types.messages import Reply, ToolCall

SECRET = 'pass "word\\ é'
KNOWN = KnownSecrets.of_environment({"DB_PASSWORD": SECRET})


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(SECRET, id="as it is"),
        pytest.param(f"https://host/?q={SECRET}&x", id="within a text"),
        pytest.param(json.dumps({"a": SECRET}), id="in JSON"),
        pytest.param(json.dumps({"a": SECRET}, ensure_ascii=False), id="in JSON with its letters"),
        pytest.param(repr({"a": SECRET}), id="in a representation"),
        pytest.param(json.dumps({"line": repr({"a": SECRET})}), id="in a representation in JSON"),
        pytest.param(json.dumps(json.dumps([SECRET])), id="in JSON in JSON"),
    ],
)
def test_a_secret_is_hidden_in_every_shape(shown: str) -> None:
    found = KNOWN.hidden(shown)
    assert HIDDEN in found
    assert "word" not in found


@given(st.text(min_size=8), st.text(), st.text())
def test_no_secret_is_left_whatever_it_is_made_of(secret: str, before: str, after: str) -> None:
    known = KnownSecrets.of_environment({"A_TOKEN": secret})
    found = known.hidden(before + secret + after)
    assert secret not in found or secret in HIDDEN or secret in before + HIDDEN + after


@pytest.mark.parametrize(
    ("environment", "also", "text", "expected"),
    [
        pytest.param({"A_TOKEN": "abcdefgh"}, (), "abcdefgh", HIDDEN, id="by its name"),
        pytest.param({"A_TOKEN": "abc"}, (), "abc", "abc", id="too short to be one"),
        pytest.param({"HOME": "/home/me"}, (), "/home/me", "/home/me", id="of another name"),
        pytest.param({"TEAM": "abcdefgh"}, ("TEAM",), "abcdefgh", HIDDEN, id="named besides"),
        pytest.param({}, ("TEAM",), "TEAM", "TEAM", id="named and not set"),
        pytest.param({"A_KEY": "abcdefgh", "B_KEY": "abcdefghij"}, (), "abcdefghij", HIDDEN, id="the longest first"),
    ],
)
def test_what_counts_as_a_secret(environment: dict[str, str], also: tuple[str, ...], text: str, expected: str) -> None:
    assert KnownSecrets.of_environment(environment, also).hidden(text) == expected


def test_a_record_without_a_secret_is_left_as_it_is() -> None:
    reply = Reply(text="word", calls=(ToolCall(call_id="c1", name="look", arguments={"a": [1, None, True]}),))
    assert KNOWN.hidden_in(reply) is reply
    assert NO_SECRETS.hidden_in(reply) is reply


def test_a_record_is_searched_to_its_depths_and_what_is_not_set_stays_so() -> None:
    call = ToolCall(call_id="c1", name="look", arguments={SECRET: [{"a": f"x{SECRET}"}, 1]})
    found = KNOWN.hidden_in(Reply(text="t", calls=(call,)))
    assert found.calls[0].arguments == {HIDDEN: [{"a": f"x{HIDDEN}"}, 1]}
    assert found.model_fields_set == {"text", "calls"}


def test_a_representation_shows_none() -> None:
    assert "word" not in repr(KNOWN)
