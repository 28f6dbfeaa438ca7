"""A folder and its configuration decide the task queue of its runs on the server that all folders share."""

from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.adapters.agents import ConfiguredAgents
from orga.activities.ports import OtherPlace
from orga.activities.prepare import PrepareActivities
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig, TemporalConfig
from orga.client.config.workplace import own_queue, worker_command, workplace
from orga.client.server.pollers import config_digest, identity_suffix, is_of_process, own_identity
from orga.workflows.types.input import Workplace, workplace_of
from orga.workflows.types.setup import PrepareRequest, Setup
from tests.support.tools.activities import Beats

HOME = Workplace(folder="/home/me/a", root="/home/me/a", config=None, mark="0123456789")


def a_place(folder: Path, monkeypatch: pytest.MonkeyPatch, toml: str | None = None) -> Workplace:
    folder.mkdir(exist_ok=True)
    if toml is not None:
        (folder / "orga.toml").write_text(toml)
    monkeypatch.chdir(folder)
    return workplace(load_config(env={"ORGA_TRUST": "1"}).config)


def test_a_place_is_its_root_and_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (a_place(tmp_path / name, monkeypatch) for name in "ab")
    with_file = a_place(tmp_path / "a", monkeypatch, "[tools]\n")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    linked = a_place(tmp_path / "link", monkeypatch)
    assert len({a.mark, b.mark, with_file.mark}) == 3
    assert linked.mark == with_file.mark
    assert with_file.root == str(tmp_path / "a")
    changed = a_place(tmp_path / "a", monkeypatch, "[models]\n")
    assert (changed.mark, changed.digest == with_file.digest) == (with_file.mark, False)
    rooted = a_place(tmp_path / "a", monkeypatch, "[tools.files]\nroot = '..'\n")
    assert (rooted.root, rooted.mark == changed.mark) == (str(tmp_path), False)


@pytest.mark.parametrize(
    ("named", "embedded", "expected"),
    [
        pytest.param(None, True, "orga-0123456789", id="the embedded server: of its own"),
        pytest.param("mine", True, "mine-0123456789", id="a name does not make it common to all folders"),
        pytest.param("mine-0123456789", True, "mine-0123456789", id="what a command hands to its worker stays"),
        pytest.param(None, False, "orga", id="a configured server: the usual one"),
        pytest.param("mine", False, "mine", id="a configured server: as the config says"),
    ],
)
def test_the_queue(named: str | None, embedded: bool, expected: str) -> None:
    config = OrgaConfig(temporal=TemporalConfig(task_queue=named))
    assert own_queue(config, HOME, embedded=embedded) == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        pytest.param(None, "orga worker", id="started for no folder"),
        pytest.param(HOME, "cd /home/me/a && orga worker", id="another folder"),
        pytest.param(
            HOME.model_copy(update=dict.fromkeys(("folder", "root"), "/x/my files; rm -rf ~")),
            "cd '/x/my files; rm -rf ~' && orga worker",
            id="quoted",
        ),
        pytest.param(
            HOME.model_copy(update={"config": "/etc/other.toml"}),
            "cd /home/me/a && orga worker --config /etc/other.toml",
            id="a configuration that is not found from there",
        ),
        pytest.param(HOME.model_copy(update={"folder": "/x\nforged"}), "orga worker", id="a name that forges lines"),
        pytest.param(
            HOME.model_copy(update={"root": "/srv/a b"}),
            "cd /home/me/a && ORGA_TOOLS__FILES__ROOT='/srv/a b' orga worker",
            id="a root that the environment named",
        ),
    ],
)
def test_how_a_worker_is_started(place: Workplace | None, expected: str) -> None:
    assert worker_command(place) == expected


def test_in_the_folder_itself_no_other_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_command(a_place(tmp_path / "a", monkeypatch, "")) == "orga worker"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, "", "orga worker --config /dev/null", id="there was no file"),
        pytest.param(
            "[tools.files]\nroot = 'b'", "# changed\n[tools.files]\nroot = 'b'", "orga worker", id="the same root"
        ),
        pytest.param("", "[tools.files]\nroot = 'b'", "ORGA_TOOLS__FILES__ROOT={} orga worker", id="another root"),
        pytest.param("", "[tools.files]\nroot = 7", "orga worker", id="broken since"),
        pytest.param("", '[tools.files]\nroot = "a\\u0000"', "orga worker", id="no path since"),
    ],
)
def test_a_folder_that_has_changed_since_is_worked_in_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str, expected: str
) -> None:
    """Else the worker polls another queue, and the run waits for ever."""
    place = a_place(tmp_path, monkeypatch, before)
    (tmp_path / "orga.toml").write_text(after)
    assert worker_command(place) == expected.format(tmp_path)


@pytest.mark.parametrize("value", ["text", 7, [], {}, {"folder": 1, "root": 2}, {"folder": "x"}])
def test_a_memo_may_hold_anything(value: object) -> None:
    assert workplace_of(value) is None


def test_an_identity_tells_process_and_configuration() -> None:
    identity = own_identity(7) + identity_suffix(HOME.model_copy(update={"digest": "abcdef012345"}))
    assert is_of_process(identity, 7)
    assert not is_of_process(identity, 77)
    assert config_digest(identity) == "abcdef01"
    assert config_digest(own_identity(7) + identity_suffix(HOME)) == "-"
    assert config_digest(own_identity(7)) is None


def agents(place: Workplace | None) -> ConfiguredAgents:
    facts = Setup(agent="", model="", workplace=place)
    return ConfiguredAgents({}, {}, "offline:extractive", lambda _: None, facts)


@pytest.mark.parametrize("place", [None, HOME, HOME.model_copy(update={"folder": "/a/link", "digest": "new"})])
async def test_a_worker_prepares_the_runs_of_its_place(place: Workplace | None) -> None:
    """Those of none, too, as other clients start them; an edited configuration is the same place."""
    assert (await agents(HOME).setup(PrepareRequest(workplace=place, tools=()))).workplace == HOME


async def test_a_worker_leaves_the_runs_of_other_places_to_others() -> None:
    other = HOME.model_copy(update={"folder": "/home/me/b", "mark": "another"})
    with pytest.raises(OtherPlace, match="started for /home/me/b, and this worker works for /home/me/a"):
        await agents(HOME).setup(PrepareRequest(workplace=other, tools=()))
    prepare = PrepareActivities(agents(HOME), cast(Any, None)).prepare
    with pytest.raises(ApplicationError) as caught:
        await Beats().run(prepare, PrepareRequest(workplace=other, tools=()))
    assert (caught.value.type, caught.value.non_retryable) == ("OtherPlace", False)
