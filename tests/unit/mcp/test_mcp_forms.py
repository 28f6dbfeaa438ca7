"""A server's requests for input: which people are asked, by which questions, and the values in their answers."""

from typing import Any

import pytest
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
)

from orga.activities.adapters.mcp.elicitation import (
    MAX_FIELDS,
    CallInFlight,
    UnusableRequest,
    asked_inputs,
    input_responses,
)
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.decisions.tool_calls.call_questions import field_value, input_options, input_question_text
from orga.workflows.types.questions import AskedInput, AskedInputs, FormField, GivenInputs

SECRETS = KnownSecrets.from_values(["s3cr3t-token-value"])


def form(required: Any = (), message: str = "Which one?", **fields: Any) -> InputRequest:
    schema = {"type": "object", "properties": fields, "required": required}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def page(url: str) -> InputRequest:
    return ElicitRequest(params=ElicitRequestURLParams(message="Log in.", url=url))


def read(*requests: InputRequest, state: str | None = None) -> AskedInputs:
    asked = {str(number): request for number, request in enumerate(requests)}
    return asked_inputs("shop", InputRequiredResult(input_requests=asked, request_state=state), SECRETS)


def test_a_form_has_a_field_for_each_property() -> None:
    size: dict[str, Any] = {"type": "string", "enum": ["S", "L"], "description": "how large"}
    color = {"type": "string", "oneOf": [{"const": "red", "title": "Red"}, {"const": "blue"}]}
    count = {"type": "integer", "title": "Count", "minimum": 1, "maximum": 9}
    [asked] = read(form(["size"], size=size, color=color, count=count, note={"type": "string", "maxLength": 5})).inputs
    assert asked.fields == (
        FormField(name="size", title="size: how large", options=("S", "L")),
        FormField(name="color", title="color (red: Red)", options=("red", "blue"), is_required=False),
        FormField(name="count", kind="integer", title="Count", is_required=False, least=1, most=9),
        FormField(name="note", title="note", is_required=False, most=5),
    )


def test_limits_that_no_field_can_have_are_left_out() -> None:
    odd: list[Any] = [{"type": "number", "minimum": each} for each in (float("inf"), float("nan"), 10**400, "1")]
    [asked] = read(form(**{f"f{number}": schema for number, schema in enumerate(odd)})).inputs
    assert {(field.least, field.most) for field in asked.fields} == {(None, None)}


def test_texts_of_a_server_are_one_line_without_secrets() -> None:
    field = {"type": "string", "description": "x\ny"}
    [asked] = read(form(message="one\u202e\ntwo s3cr3t-token-value", a=field)).inputs
    assert "\n" not in asked.message + asked.fields[0].title
    assert "\u202e" not in asked.message
    assert "s3cr3t" not in asked.message


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        pytest.param(form(password={"type": "string"}), "a secret in a form (password)", id="a password"),
        pytest.param(form(x={"type": "string", "description": "Your API key"}), "a secret", id="a key by its text"),
        pytest.param(form(x={"type": "object"}), "no text, number, yes/no or list (x)", id="a nested object"),
        pytest.param(form(x={"type": "array", "items": {"type": "string"}}), "the choices of x", id="a list of texts"),
        pytest.param(form(x={"type": "array", "items": {"enum": ["a,b"]}}), "the choices of x", id="a comma"),
        pytest.param(form(x={"type": "string", "title": "Enter the PIN (never share it)"}), "a secret", id="a PIN"),
        pytest.param(form(x={}), "no text, number", id="no type"),
        pytest.param(form(x={"type": "string", "enum": [1, 2]}), "the choices of x", id="choices that are no texts"),
        pytest.param(form(x={"type": "string", "enum": ["a\u202e"]}), "the choices of x", id="hidden characters"),
        pytest.param(form(x={"type": "string", "enum": ["a", "a"]}), "the choices of x", id="a choice twice"),
        pytest.param(page("file:///etc/passwd"), "no web address", id="a file"),
        pytest.param(page("https://a.test/\u202e"), "no web address", id="an address that hides characters"),
        pytest.param(page("https://bank.test@a.test/"), "no web address", id="a user name that looks like a host"),
        pytest.param(page("https://b\u0430nk.test/"), "no web address", id="a letter that looks like another"),
        pytest.param(page("https://a.test/" + "x" * 1_000), "no web address", id="an address that would be cut"),
        pytest.param(ListRootsRequest(), "more than input from a person", id="roots"),
    ],
)
def test_nobody_is_asked_for_anything_else(request_: InputRequest, why: str) -> None:
    with pytest.raises(UnusableRequest, match=why.replace("(", r"\(").replace(")", r"\)")):
        read(request_)


def test_a_list_has_choices_and_a_warning_asks_for_nothing() -> None:
    items = {"anyOf": [{"const": "tuna", "title": "Tuna"}, {"const": "trout"}]}
    fields: dict[str, Any] = {
        "fish": {"type": "array", "items": items},
        "n": {"type": "integer", "title": "No (do not give us a pin)"},
    }
    [asked] = read(form(**fields)).inputs
    fish, number = asked.fields
    assert (fish.kind, fish.options, number.kind) == ("list", ("tuna", "trout"), "integer")
    assert input_options(asked, fish) == ()
    assert field_value(fish, " trout,tuna, trout") == ["trout", "tuna"]
    with pytest.raises(ValueError, match="'cod' is not one or several of tuna, trout, separated by commas"):
        field_value(fish, "cod")


@pytest.mark.parametrize(
    ("name", "right", "wrong", "problem"),
    [
        ("email", "ada@example.org", "Ada", "is not an email address"),
        ("uri", "https://example.org/a", "example", "is not an address such as https://example.org"),
        ("date", "2026-01-31", "31.1.", "is not a date such as 2026-01-31"),
        ("date-time", "2026-01-31T09:00:00+01:00", "2026-01-31T09:00:00", "is not a time such as"),
        ("date-time", "2026-01-31T09:00:00+01:00", "soon", "is not a time such as"),
    ],
)
def test_the_format_of_a_text_is_named_and_checked(name: str, right: str, wrong: str, problem: str) -> None:
    [asked] = read(form(x={"type": "string", "format": name, "maxLength": 30, "minimum": 99})).inputs
    [field] = asked.fields
    assert input_question_text("shop", "buy", asked, field).count(", at most 30 characters.") == 1
    assert field_value(field, f" {right} ") == right
    with pytest.raises(ValueError, match=problem):
        field_value(field, wrong)
    with pytest.raises(
        ValueError, match="is not allowed, at most 30 characters" if name in ("email", "uri") else "is not"
    ):
        field_value(field, right + "x" * 30)


@pytest.mark.parametrize("name", ["ipv4", ["email"], None])
def test_another_format_is_a_text(name: Any) -> None:
    [asked] = read(form(x={"type": "string", "format": name})).inputs
    assert (asked.fields[0].kind, field_value(asked.fields[0], "any")) == ("string", "any")


def test_a_request_is_bounded() -> None:
    field = {"type": "string"}
    many: dict[str, Any] = {f"f{n}": field for n in range(MAX_FIELDS)}
    read(form(**many))
    with pytest.raises(UnusableRequest, match="more than 20 things"):
        read(form(**many), form())
    with pytest.raises(UnusableRequest, match="repeats a secret"):
        read(form(), state="s3cr3t-token-value")
    with pytest.raises(UnusableRequest, match="more than 100,000 bytes"):
        read(form(), state="x" * 100_000)
    assert read(form(5, x=field)).inputs[0].fields[0].is_required is False


def test_requests_in_the_middle_of_a_call_are_bounded() -> None:
    call = CallInFlight(GivenInputs(), may_repeat=True)
    for number in range(100):
        assert call.answer(ElicitRequestURLParams(message=f"{number}", url="https://a.test")).action == "cancel"
    with pytest.raises(UnusableRequest, match="more than 20 things"):
        asked_inputs("old", InputRequiredResult(input_requests={**call.asked}), SECRETS, call.given)
    assert len(call.asked) == MAX_FIELDS + 1
    assert call.unanswered == ""
    call.answer(ElicitRequestURLParams(message="x" * 100_000, url="https://a.test"))
    assert call.unanswered == "A request has more than 100,000 bytes."


def test_answers_become_those_of_the_protocol() -> None:
    given = GivenInputs().with_answer("a", {"n": 1}).with_answer("b", None).with_answer("c", {})
    found = {key: each.model_dump(exclude_none=True) for key, each in input_responses(given).items()}
    assert [(each["action"], each.get("content")) for each in found.values()] == [
        ("accept", {"n": 1}),
        ("decline", None),
        ("accept", None),
    ]


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        ("string", " two words ", " two words "),
        ("integer", " 12 ", 12),
        ("number", "1.5", 1.5),
        ("boolean", "yes", True),
        ("boolean", "no", False),
        ("integer", "-", None),
    ],
)
def test_an_answer_becomes_the_value_of_its_field(kind: Any, answer: str, value: Any) -> None:
    assert field_value(FormField(name="x", kind=kind, is_required=False), answer) == value


@pytest.mark.parametrize(("kind", "answer"), [("integer", "1.5"), ("number", "nan"), ("number", "-"), ("integer", "")])
def test_another_answer_is_refused(kind: Any, answer: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        field_value(FormField(name="x", kind=kind), answer)


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        ("integer", "0", "'0' is not allowed, at least 1, at most 3"),
        ("number", "3.5", "'3.5' is not allowed, at least 1, at most 3"),
        ("string", "four", "'four' is not allowed, at least 1 characters, at most 3 characters"),
        ("string", "", "'' is not allowed"),
    ],
)
def test_an_answer_keeps_the_limits_of_its_field(kind: Any, answer: str, problem: str) -> None:
    field = FormField(name="x", kind=kind, least=1, most=3)
    with pytest.raises(ValueError, match=problem):
        field_value(field, answer)
    assert field_value(field, "2") in {2, "2"}
    text = input_question_text("shop", "shop_order", AskedInput(key="k", message="How?", fields=(field,)), field)
    assert ", at least 1" in text


def test_the_question_names_the_server_the_tool_and_the_choices() -> None:
    field = FormField(name="x", kind="boolean", title="Gift wrap?", is_required=False)
    asked = AskedInput(key="k", message="How?", fields=(field,))
    text = input_question_text("shop", "shop_order", asked, field, "'x' is no text")
    assert text.startswith("The MCP server 'shop' asks, for shop_order: How?\nGift wrap? (optional, '-' leaves it out)")
    assert text.endswith("Never give a password, a key or the number of a card.\n'x' is no text")
    assert input_options(asked, field) == ("yes", "no", "-")
    assert input_options(AskedInput(key="k", message="Sure?"), None) == ("yes", "no")
    assert input_options(AskedInput(key="k", message="Go.", url="https://a.test"), None) == ("done",)
