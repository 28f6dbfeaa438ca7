"""Settings at run time: what can be set, what is refused, and that nothing else can change."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.run_time import RunTimeRules, setting_paths, value_at
from orga.client.config.sections import OrgaConfig
from orga.client.errors import InvalidSettings
from orga.client.runs.settings import RecordedSettings, read_settings
from orga.client.workers import run_time
from orga.client.workers.run_time import SettingsLookup
from orga.workflows.decisions import settings as decisions
from orga.workflows.types.settings import MAX_VERSIONS, SettingsChange, SettingsState

CONFIG = OrgaConfig.model_validate(
    {
        "models": {"tiers": {"local": ["ollama:small"], "light": ["openai:light"]}},
        "agents": {
            "default": {"config": {"max_cost_usd": 5}},
            "coder": {"model": "openai:big", "tools": ["run_command"], "delegates": [{"agent": "default"}]},
            "house": {"model": "tier:local"},
        },
        "tools": {"commands": {"allow": ["git"]}},
        "goals": {"deliveries": {"post": {"kind": "webhook", "url": "https://a.io", "secret_from": "SECRET"}}},
    },
    extra="forbid",
)


def has_a_key(model: str) -> None:
    if not model.startswith(("openai:", "ollama:", "offline:")):
        raise ValueError(f"{model}: its key is not set")


RULES = RunTimeRules(CONFIG, "openai:big", has_a_key, lambda model: model != "openai:unpriced")
PLANNING = "Briefly: {{ skills }} as {{ answer_form }}"

GOOD: dict[str, Any] = {
    "goals.prompts.planning": PLANNING,
    "goals.prompts.summary": "",
    "goals.tiers.plan": "light",
    "goals.deliveries.post.default": True,
    "models.default": "openai:other",
    "models.tiers.heavy": ["openai:big", "openai:light"],
    "agents.coder.model": None,
    "agents.coder.instructions": "Write code.",
    "agents.default.config.max_iterations": 9,
    "agents.default.config.max_cost_usd": None,
    "agents.house.config.timeout_s": 12.5,
}


@pytest.mark.parametrize("key", GOOD)
def test_a_valid_value_replaces_only_that_of_the_file(key: str) -> None:
    changed = RULES.effective({key: GOOD[key]})

    assert value_at(changed, setting_paths(CONFIG)[key]) == GOOD[key]
    assert others(changed, {key}) == others(CONFIG, {key})


def test_several_values_form_one_configuration() -> None:
    changed = RULES.effective(GOOD)

    assert {key: value_at(changed, setting_paths(CONFIG)[key]) for key in GOOD} == GOOD
    assert changed.tools == CONFIG.tools
    assert changed.agents["coder"].tools == ("run_command",)


def others(config: OrgaConfig, apart: set[str]) -> dict[str, Any]:
    """Return all leaves of the configuration except these."""
    from orga.activities.adapters.agents.agents import with_default_agent

    return {
        key: value
        for key, value in leaves("", config.with_agents(with_default_agent(config.agents)).model_dump(mode="json"))
        if key not in apart
    }


def leaves(above: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in cast("dict[str, Any]", value).items():
            yield from leaves(f"{above}.{key}" if above else key, inner)
    else:
        yield above, value


FORBIDDEN = sorted(others(CONFIG, set(setting_paths(CONFIG))))
"""All keys of the configuration that cannot be set at run time."""

BAD: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"agents.coder.tools": []}, "agents.coder.tools", "cannot be set at run time"),
    ({"agents.new.instructions": "x"}, "agents.new.instructions", "cannot be set at run time"),
    ({"agents.coder.delegates": []}, "agents.coder.delegates", "cannot be set at run time"),
    ({"models.tiers.local": ["openai:big"]}, "models.tiers.local", "cannot be set at run time"),
    ({"models.base_urls": {"openai": "https://b.io"}}, "models.base_urls", "cannot be set at run time"),
    ({"goals.deliveries.post.url": "https://b.io"}, "goals.deliveries.post.url", "cannot be set at run time"),
    ({"goals.deliveries.other.default": True}, "goals.deliveries.other.default", "cannot be set at run time"),
    ({"goals.deliveries.post.default": {"url": "x"}}, "goals.deliveries.post.default", "boolean"),
    ({"goals.prompts.planning": "{{ skills }}"}, "goals.prompts.planning", "lacks {{ answer_form }}"),
    ({"goals.prompts.planning": "{% for a in b %}"}, "goals.prompts.planning", "line 1"),
    ({"goals.prompts.summary": "x" * 17_000}, "goals.prompts.summary", "at most 16,000"),
    ({"goals.tiers.plan": "heavy"}, "goals.tiers.plan", "names a tier without models"),
    ({"goals.tiers.plan": "huge"}, "goals.tiers.plan", "should be"),
    ({"models.default": "tier:heavy"}, "models.default", "names a tier without models"),
    ({"models.default": "anthropic:big"}, "models.default", "its key is not set"),
    ({"models.tiers.light": ["openai:a", "openai:a"]}, "models.tiers.light", "listed twice"),
    ({"models.tiers.light": ["anthropic:a"]}, "models.tiers.light", "its key is not set"),
    ({"models.default": 7}, "models.default", "string"),
    ({"models.default": "openai:" + "x" * 200}, "models.default", "at most 200 characters"),
    ({"agents.coder.model": "tier:medium"}, "agents.coder", "tier medium has no models"),
    ({"agents.default.model": "openai:unpriced"}, "agents.default", "the price of openai:unpriced is not known"),
    ({"agents.house.model": "openai:big"}, "agents.house.model", "binds the agent to the local tier"),
    ({"agents.coder.instructions": None}, "agents.coder.instructions", "should be a valid string"),
    ({"agents.coder.instructions": "x" * 250_000}, "values", "at most 200,000"),
    ({"agents.coder.instructions": "\ud800"}, "agents.coder.instructions", "valid Unicode"),
    ({"agents.default.config.max_iterations": True}, "agents.default.config.max_iterations", "not true or false"),
    ({"agents.default.config.max_iterations": 0}, "agents.default.config.max_iterations", "greater than or equal to 1"),
    ({"agents.default.config.timeout_s": float("nan")}, "agents.default.config.timeout_s", "finite"),
    ({"agents.default.config": {"knowledge": {}}}, "agents.default.config", "cannot be set at run time"),
    ({"agents.default.config.knowledge": {}}, "agents.default.config.knowledge", "cannot be set at run time"),
    ({"": 1}, "", "cannot be set at run time"),
)


@pytest.mark.parametrize(("values", "where", "problem"), BAD, ids=lambda each: str(each)[:40])
def test_an_invalid_value_is_refused_with_its_key(values: dict[str, Any], where: str, problem: str) -> None:
    found = RULES.problems({"goals.prompts.decision": "", **values})

    assert any(each.where == where and problem in each.detail for each in found), found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
LIMITS = [key for key in setting_paths(CONFIG) if ".config." in key]
BAD_PAIRS = st.one_of(
    st.tuples(st.sampled_from(FORBIDDEN), JSON),
    st.tuples(st.text(max_size=30).map(lambda key: f"{key}!"), JSON),
    st.tuples(st.sampled_from(LIMITS), st.integers(max_value=-1) | st.text("abc", min_size=1) | st.booleans()),
    st.tuples(
        st.sampled_from([key for key in setting_paths(CONFIG) if key.startswith("goals.prompts.")]),
        st.text(min_size=1).filter(str.strip) | st.integers() | st.just("{{ answer_form }") | st.just("{{ a.b }}"),
    ),
    st.tuples(st.sampled_from(["models.default", "agents.coder.model"]), st.text("xyz:", min_size=1) | st.booleans()),
    st.tuples(st.just("models.tiers.heavy"), st.lists(st.text("xyz:"), min_size=1, max_size=9) | st.integers()),
)


@settings(max_examples=1_000)
@given(st.dictionaries(st.sampled_from(list(GOOD)), st.just(None), max_size=4), BAD_PAIRS)
def test_generated_invalid_settings_are_refused_and_change_nothing(good: dict[str, None], bad: tuple[str, Any]) -> None:
    before = CONFIG.model_dump_json()
    key, value = bad

    with pytest.raises(InvalidSettings) as refused:
        RULES.effective({**{each: GOOD[each] for each in good}, key: value})

    assert refused.value.problems
    assert CONFIG.model_dump_json() == before


@settings(max_examples=500)
@given(
    st.dictionaries(
        st.sampled_from(list(setting_paths(CONFIG))), JSON | st.sampled_from(list(GOOD.values())), max_size=5
    )
)
def test_no_set_changes_anything_but_its_own_keys(values: dict[str, Any]) -> None:
    try:
        changed = RULES.effective(values)
    except InvalidSettings:
        return
    assert others(changed, set(values)) == others(CONFIG, set(values))


def test_keys_that_run_code_or_add_powers_cannot_be_set() -> None:
    words = ("tool", "mcp", "policy", "command", "url", "approv", "key", "delegates", "critics", "local", "knowledge")
    assert [key for key in setting_paths(CONFIG) if any(word in key for word in words)] == [
        f"agents.{name}.config.{limit}"
        for name in ("default", "coder", "house")
        for limit in ("max_tool_calls", "tool_timeout_s", "max_concurrent_tools")
    ]


# --- versions


NOW = datetime(2030, 1, 1, tzinfo=UTC)


def after(state: SettingsState, values: Mapping[str, Any], by: str = "ann") -> SettingsState:
    change = SettingsChange(version=state.version, values=dict(values), by=by)
    return decisions.with_change(state, change, NOW)


def test_a_version_names_the_changed_keys() -> None:
    state = after(after(SettingsState(), {"a": 1, "b": 2}), {"b": 3, "c": None})

    assert [(each.version, each.changed) for each in state.versions] == [(1, ("a", "b")), (2, ("a", "b", "c"))]
    assert state.values == {"b": 3, "c": None}


def test_versions_are_dropped_above_their_number_and_their_size() -> None:
    many, large = SettingsState(), SettingsState()
    for number in range(MAX_VERSIONS + 5):
        many = after(many, {"a": number})
    for number in range(8):
        large = after(large, {"a": f"{number}" + "x" * 190_000})

    assert (len(many.versions), many.version) == (MAX_VERSIONS, MAX_VERSIONS + 5)
    assert [each.version for each in large.versions] == [7, 8]


@pytest.mark.parametrize("given", [None, 7, "x", {"versions": 3}, {"versions": [{"version": 0}]}], ids=str)
def test_an_invalid_state_of_a_starter_counts_as_none(given: object) -> None:
    assert decisions.initial_settings(given).version == 0


# --- the lookup of a worker


class Server:
    """Answers each request with this, after a delay."""

    def __init__(self, answer: RecordedSettings | Exception, delay_s: float = 0.0) -> None:
        self.answer, self.delay_s, self.requests = answer, delay_s, 0

    def get_workflow_handle(self, workflow_id: str) -> "Server":
        return self

    async def describe(self, *, rpc_timeout: timedelta) -> Any:
        self.requests += 1
        await asyncio.sleep(self.delay_s)  # an RPC repeats itself beyond its own time limit
        assert isinstance(self.answer, Exception)
        raise self.answer


ABSENT = RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")


async def test_starts_without_settings_share_one_request() -> None:
    server = Server(ABSENT, delay_s=0.01)
    lookup = SettingsLookup(server)  # pyright: ignore[reportArgumentType]

    found = await asyncio.gather(*(lookup.settings("q") for _ in range(200)))
    found.append(await lookup.settings("q"))

    assert {each.state for each in found} == {"absent"}
    assert server.requests == 1


async def test_each_queue_is_looked_up_and_a_check_expires_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(ABSENT)
    lookup = SettingsLookup(server)  # pyright: ignore[reportArgumentType]
    await lookup.settings("a")
    await lookup.settings("b")
    lookup.expect_change("a")
    for _ in range(3):
        await lookup.settings("a")
        await lookup.settings("b")
    assert server.requests == 5
    monkeypatch.setattr(run_time, "FRESH_S", -1.0)
    other = SettingsLookup(server)  # pyright: ignore[reportArgumentType]
    await other.settings("b")
    await other.settings("b")
    assert server.requests == 7


@pytest.mark.parametrize(
    ("answer", "delay_s"),
    [(RPCError("gone", RPCStatusCode.UNAVAILABLE, b""), 0.0), (RuntimeError("a codec"), 0.0), (ABSENT, 60.0)],
    ids=["away", "a defect of an interceptor", "slow"],
)
async def test_an_unresponsive_server_delays_a_start_only_briefly(answer: Exception, delay_s: float) -> None:
    began = asyncio.get_running_loop().time()

    found = await read_settings(Server(answer, delay_s), "q", within=timedelta(seconds=0.05))  # pyright: ignore[reportArgumentType]

    assert (found.state, found.current) == ("unreachable", None)
    assert asyncio.get_running_loop().time() - began < 5
