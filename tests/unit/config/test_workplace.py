"""A folder and its configuration determine the task queue of its runs on the shared server."""

import hashlib
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.ports import OtherPlace
from orga.activities.prepare import PrepareActivities
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig, TemporalConfig
from orga.client.config.workplace import folder_queue, is_earlier_queue, own_queue, worker_command, workplace
from orga.client.server.pollers import WorkerIdentity, local_process, short_config
from orga.workflows.types.models.providers import PROVIDERS
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.workplace import Workplace, workplace_of
from tests.support.tools.activities import Beats

HOME = Workplace(folder="/home/me/a", root="/home/me/a", config=None, mark="0123456789")


def a_place(folder: Path, monkeypatch: pytest.MonkeyPatch, toml: str | None = None) -> Workplace:
    folder.mkdir(exist_ok=True)
    if toml is not None:
        (folder / "orga.toml").write_text(toml)
    monkeypatch.chdir(folder)
    return workplace(load_config(env={"ORGA_TRUST": "1"}))


def test_a_place_is_identified_by_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (a_place(tmp_path / name, monkeypatch) for name in "ab")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    linked = a_place(tmp_path / "link", monkeypatch)
    assert (a.root, linked.mark) == (str(tmp_path / "a"), a.mark)
    assert b.mark != a.mark
    rooted = a_place(tmp_path / "a", monkeypatch, "[tools.files]\nroot = '..'\n")
    assert (rooted.root, rooted.mark == a.mark) == (str(tmp_path), False)


def test_a_folder_keeps_its_queue_if_its_configuration_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, moved, above = tmp_path / "orga.toml", tmp_path / "other.toml", tmp_path.parent / "orga.toml"

    def found(named: Path | None = None) -> tuple[str, str]:
        config = load_config(named, env={"ORGA_TRUST": "1"})
        place = workplace(config)
        assert place.config == (str(config.file) if config.file else None)
        return own_queue(config, place, embedded=True), place.digest

    without = found()
    file.write_text("[models]\n")
    appeared = found()
    file.write_text('[temporal]\ntask_queue = "mine"\n')
    changed = found()
    renamed = found(file.rename(moved))
    try:
        higher = found(moved.rename(above))
    finally:
        above.unlink()
    assert {queue for queue, _ in (without, appeared, changed, renamed, higher)} == {without[0]}
    assert [without[1], len({appeared[1], changed[1]}), renamed[1], higher[1]] == ["", 2, changed[1], changed[1]]


def test_runs_on_an_earlier_queue_of_the_folder_still_belong_to_it() -> None:
    mark = hashlib.sha256(b"/home/me/a\0/home/me/a/orga.toml").hexdigest()[:10]
    before = HOME.model_copy(update={"config": "/home/me/a/orga.toml", "mark": mark})
    assert is_earlier_queue(f"orga-{mark}", before, HOME)
    assert not is_earlier_queue("orga-elsewhere", before, HOME)
    assert not is_earlier_queue(f"orga-{mark}", before, HOME.model_copy(update={"root": "/home/me/b"}))
    assert not is_earlier_queue("orga-made-up", before.model_copy(update={"mark": "made-up"}), HOME)
    assert not is_earlier_queue(f"orga-{mark}", None, HOME)


@pytest.mark.parametrize(
    ("named", "embedded", "expected"),
    [
        pytest.param(None, True, "orga-0123456789", id="the embedded server has a queue for the folder"),
        pytest.param("mine", True, "orga-0123456789", id="a configured name changes nothing there"),
        pytest.param(
            "orga-0123456789-ab", True, "orga-0123456789-ab", id="the queue that a command passes to its worker"
        ),
        pytest.param(None, False, "orga", id="a configured server has the usual queue"),
        pytest.param("mine", False, "mine", id="a configured server has the configured queue"),
    ],
)
def test_the_queue(named: str | None, embedded: bool, expected: str) -> None:
    config = OrgaConfig(temporal=TemporalConfig(task_queue=named))
    assert own_queue(config, HOME, embedded=embedded) == expected


SHELLS = {
    "an address": {"OPENAI_COMPATIBLE_BASE_URL": "http://a"},
    "another address": {"OPENAI_COMPATIBLE_BASE_URL": "http://b"},
    "a host": {"OLLAMA_HOST": "a:1"},
    "an address of the configuration": {"ORGA_MODELS__BASE_URLS__OPENAI": "http://a"},
    "a model of the configuration": {"ORGA_MODELS__DEFAULT": "ollama:a"},
    "the model of an agent": {"ORGA_AGENTS__DEFAULT__MODEL": "ollama:a"},
    "an agent as one table": {"ORGA_AGENTS__DEFAULT": '{"model": "ollama:a"}'},
    "a critic of an agent": {"ORGA_AGENTS__DEFAULT__CRITICS": '[{"name": "c", "model": "ollama:a"}]'},
    "a tier of goals": {"ORGA_GOALS__TIERS__PLAN": "heavy"},
    "an embedder": {"ORGA_KNOWLEDGE__EMBEDDER": "openai:e"},
    "a key": {"OPENAI_API_KEY": "one"},
    "a key and its model": {"OPENAI_API_KEY": "one", "CHAT_MODEL": "m"},
    "the key of another provider": {"ANTHROPIC_API_KEY": "one"},
    "nothing": {},
}


def test_shells_with_different_models_have_different_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unused second key, another key of the same provider, a slash and other settings change nothing."""

    def place(env: dict[str, str]) -> Workplace:
        with monkeypatch.context() as patch:
            for name in {name for each in SHELLS.values() for name in each}:
                patch.delenv(name, raising=False)
            for name, value in env.items():
                patch.setenv(name, value)
            return workplace(OrgaConfig())

    found = {name: own_queue(OrgaConfig(), place(env), embedded=True) for name, env in SHELLS.items()}
    assert len(set(found.values())) == len(SHELLS)
    assert all(queue.startswith(found["nothing"]) for queue in found.values())
    assert found["nothing"] == folder_queue(place({"OPENAI_API_KEY": "one"}))
    same = place(SHELLS["a key"] | SHELLS["the key of another provider"] | {"OPENAI_API_KEY": "two"})
    assert own_queue(OrgaConfig(), same, embedded=True) == found["a key"]
    limited = place({"ORGA_AGENTS__DEFAULT__CONFIG__MAX_COST_USD": "1"})
    assert own_queue(OrgaConfig(), limited, embedded=True) == found["nothing"]
    slash = place({"OPENAI_COMPATIBLE_BASE_URL": "http://a/ "})
    assert own_queue(OrgaConfig(), slash, embedded=True) == found["an address"]
    assert "one" not in place(SHELLS["a key"]).model_dump_json()
    assert own_queue(OrgaConfig(), place(SHELLS["an address"]), embedded=False) == "orga"


@pytest.mark.parametrize("variable", [each.base_url for each in PROVIDERS.values() if each.is_remote])
def test_the_address_of_each_provider_matters(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = workplace(OrgaConfig()).models
    monkeypatch.setenv(variable, "http://elsewhere")
    assert workplace(OrgaConfig()).models != before


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        pytest.param(None, "your project's own worker, or orga worker if it has none", id="started for no folder"),
        pytest.param(HOME, "cd /home/me/a && orga worker", id="another folder"),
        pytest.param(
            HOME.model_copy(update=dict.fromkeys(("folder", "root"), "/x/my files; rm -rf ~")),
            "cd '/x/my files; rm -rf ~' && orga worker",
            id="quoted",
        ),
        pytest.param(
            HOME.model_copy(update={"config": "/etc/hostname"}),
            "cd /home/me/a && orga worker --config /etc/hostname",
            id="a configuration outside of the folder",
        ),
        pytest.param(
            HOME.model_copy(update={"config": "/etc/no.toml"}),
            "cd /home/me/a && orga worker",
            id="a removed configuration",
        ),
        pytest.param(
            HOME.model_copy(update={"models": "ab", "variables": ("OLLAMA_HOST", "X;rm", "OPENAI_API_KEY")}),
            "cd /home/me/a && OLLAMA_HOST=… OPENAI_API_KEY=… orga worker",
            id="a shell with other models, and an invalid variable",
        ),
        pytest.param(HOME.model_copy(update={"folder": "/x\nforged"}), "orga worker", id="a name that forges lines"),
        pytest.param(HOME.model_copy(update={"folder": "/" + "a" * 300}), "orga worker", id="an impossible folder"),
        pytest.param(HOME.model_copy(update={"config": "/" + "a" * 300}), "orga worker", id="an impossible file"),
        pytest.param(
            HOME.model_copy(update={"root": "/srv/a b"}),
            "cd /home/me/a && ORGA_TOOLS__FILES__ROOT='/srv/a b' orga worker",
            id="a root from the environment",
        ),
    ],
)
def test_the_command_of_a_worker_is_shown(place: Workplace | None, expected: str) -> None:
    assert worker_command(place) == expected


def test_a_folder_in_place_of_a_configuration_does_not_prevent_the_command(tmp_path: Path) -> None:
    """Otherwise one run with such a folder, which any starter can name, would make every list of runs fail."""
    (tmp_path / "orga.toml").mkdir()
    place = HOME.model_copy(update=dict.fromkeys(("folder", "root"), str(tmp_path)))
    assert worker_command(place) == f"cd {tmp_path} && orga worker"


def test_in_the_same_folder_no_other_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_command(a_place(tmp_path / "a", monkeypatch, "")) == "orga worker"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, "", "orga worker", id="no earlier file"),
        pytest.param(
            "[tools.files]\nroot = 'b'", "# changed\n[tools.files]\nroot = 'b'", "orga worker", id="the same root"
        ),
        pytest.param("", "[tools.files]\nroot = 'b'", "ORGA_TOOLS__FILES__ROOT={} orga worker", id="another root"),
        pytest.param("", "[tools.files]\nroot = 7", "orga worker", id="broken later"),
        pytest.param("", '[tools.files]\nroot = "a\\u0000"', "orga worker", id="invalid path later"),
    ],
)
def test_the_command_keeps_the_recorded_root_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str, expected: str
) -> None:
    """Otherwise the worker would poll another queue and the run would wait forever. A new file changes nothing."""
    place = a_place(tmp_path, monkeypatch, before)
    (tmp_path / "orga.toml").write_text(after)
    assert worker_command(place) == expected.format(tmp_path)


@pytest.mark.parametrize("value", ["text", 7, [], {}, {"folder": 1, "root": 2}, {"folder": "x"}])
def test_an_invalid_memo_has_no_workplace(value: object) -> None:
    assert workplace_of(value) is None


def test_an_identity_contains_process_and_configuration() -> None:
    place = HOME.model_copy(update={"digest": "abcdef012345"})
    text = str(WorkerIdentity(local_process(7), short_config(place)))
    assert text == f"{local_process(7)}#abcdef01"
    assert WorkerIdentity.parse(text) == (local_process(7), "abcdef01", "")
    assert WorkerIdentity.parse(text).process != local_process(77)
    assert WorkerIdentity.parse(f"{local_process(7)}#{short_config(HOME)}").config == "-"
    assert WorkerIdentity.parse(local_process(7)) == (local_process(7), None, "")


def agents(place: Workplace | None) -> ConfiguredAgents:
    facts = Setup(agent="", model="", workplace=place)
    return ConfiguredAgents({}, {}, "offline:extractive", lambda _: None, facts)


@pytest.mark.parametrize("place", [None, HOME, HOME.model_copy(update={"folder": "/a/link", "digest": "new"})])
async def test_a_worker_prepares_the_runs_of_its_place(place: Workplace | None) -> None:
    """This includes runs without a place, from other clients. An edited configuration is the same place."""
    assert (await agents(HOME).setup(PrepareRequest(workplace=place, tools=()))).workplace == HOME


async def test_a_worker_refuses_the_runs_of_shells_with_other_models() -> None:
    ours = HOME.model_copy(update={"models": "ab", "variables": ("OLLAMA_HOST",)})
    for place in (HOME, ours):
        assert (await agents(ours).setup(PrepareRequest(workplace=place, tools=()))).workplace == ours
    with pytest.raises(OtherPlace, match="has other models than this worker: OLLAMA_HOST"):
        await agents(HOME).setup(PrepareRequest(workplace=ours, tools=()))


async def test_a_worker_refuses_the_runs_of_other_places() -> None:
    other = HOME.model_copy(update={"folder": "/home/me/b", "root": "/home/me/b", "mark": "another"})
    with pytest.raises(OtherPlace, match="started for /home/me/b, and this worker works for /home/me/a"):
        await agents(HOME).setup(PrepareRequest(workplace=other, tools=()))
    prepare = PrepareActivities(agents(HOME), cast(Any, None)).prepare
    with pytest.raises(ApplicationError) as caught:
        await Beats().run(prepare, PrepareRequest(workplace=other, tools=()))
    assert (caught.value.type, caught.value.non_retryable) == ("OtherPlace", False)
