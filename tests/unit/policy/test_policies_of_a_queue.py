"""One task queue, one policy: how policies of folders are distinguished, and which runs a worker refuses."""

from pathlib import Path

import pytest

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.policy.engines import engine_name, policy_engine, policy_version
from orga.activities.ports import OtherPlace
from orga.client.config.policy import policy_location_digest, policy_settings, starter_policy
from orga.client.config.sections import OrgaConfig
from orga.client.server.pollers import WorkerIdentity, local_process, short_config, short_policy
from orga.client.workers.engine_memory import worker_policy
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.tool_calls.gate import is_same_policy
from orga.workflows.types.workplace import POLICY_MEMO, Workplace, inherited_memo, policy_in_memo, run_memo
from tests.support.values.policies import PERMIT_ALL, a_folder

OURS = "cedar:here:v1"

JUDGES = {
    "its own": (OURS, OURS, True),
    "edited where they are": ("cedar:here:v2", OURS, True),
    "copied to another folder": ("cedar:there:v1", OURS, True),
    "of another folder": ("cedar:there:v2", OURS, False),
    "a server without a version": ("opa:there:", "opa:here:", False),
    "the same server": ("opa:here:", "opa:here:", True),
    "another engine at that place": ("opa:here:v1", OURS, False),
    "no rules in place of rules": ("default:here:", OURS, False),
    "rules, for a run that named none": (OURS, "default:there:", True),
    "less than what a run without rules began under": ("allow:here:", "default:there:", False),
    "nobody says": ("", OURS, True),
    "a run for any": (OURS, "", True),
    "what a starter made up": (OURS, ":::", True),
    "what a starter made up of an engine": (OURS, "cedar", False),
}


@pytest.mark.parametrize(("worker", "run", "expected"), JUDGES.values(), ids=JUDGES)
def test_a_worker_judges_runs_of_the_same_policy(worker: str, run: str, expected: bool) -> None:
    assert is_same_policy(worker, run) is expected


CONFIGS = {
    "Cedar": {"dir": "{policies}"},
    "Cedar by name": {"engine": "cedar", "dir": "{policies}"},
    "a server": {"opa": {"url": "http://127.0.0.1:9"}},
    "off": {"engine": "allow"},
    "none": {},
}


@pytest.mark.parametrize("policy", CONFIGS.values(), ids=CONFIGS)
def test_a_worker_of_the_folder_judges_its_runs(policy: dict[str, str], tmp_path: Path) -> None:
    folder = a_folder(tmp_path, all=PERMIT_ALL)
    given = {key: str(folder) if value == "{policies}" else value for key, value in policy.items()}
    config = OrgaConfig.model_validate({"policy": given})
    settings = policy_settings(config.policy, {})
    started, worker = starter_policy(config), worker_policy(config, policy_engine(settings))
    assert worker.split(":")[0] == engine_name(settings)
    assert started in {"", worker}
    assert bool(started) == (engine_name(settings) in {"cedar", "opa"})
    assert is_same_policy(worker, started)


def test_policies_of_two_folders_differ_unless_one_is_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def starts(name: str, text: str) -> str:
        folder = a_folder(tmp_path / name, all=text)
        return starter_policy(OrgaConfig.model_validate({"policy": {"dir": str(folder)}}))

    ours, theirs = starts("a", PERMIT_ALL), starts("b", PERMIT_ALL.replace("all", "other"))
    assert not is_same_policy(theirs, ours)
    assert not is_same_policy(short_policy(theirs), short_policy(ours))
    assert is_same_policy(starts("b", PERMIT_ALL), ours)
    assert is_same_policy(starts("a", PERMIT_ALL.replace("all", "edited")), ours)
    broken = starts("a", "permit (")
    assert is_same_policy(broken, ours)


async def test_a_run_started_under_another_policy_is_left_to_another_worker(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, all=PERMIT_ALL)
    config = OrgaConfig.model_validate({"policy": {"dir": str(folder)}})
    engine = policy_engine(policy_settings(config.policy, {}))
    facts = Setup(agent="", model="", policy="cedar", policy_place=policy_location_digest(config))
    agents = ConfiguredAgents(
        {}, {}, "offline:extractive", lambda _: None, facts, policy_version=lambda: policy_version(engine)
    )
    for named in ("", starter_policy(config)):
        assert (await agents.setup(PrepareRequest(policy=named, tools=()))).policy_place == policy_location_digest(
            config
        )
    with pytest.raises(OtherPlace, match="started under another policy"):
        await agents.setup(PrepareRequest(policy="cedar:elsewhere:v9", tools=()))


def test_delegates_start_under_the_policy_of_their_parent() -> None:
    place = Workplace(folder="/a", root="/a")
    memo = run_memo(place, OURS)
    assert inherited_memo(memo.get) == memo
    assert run_memo(None, "") == {}


@pytest.mark.parametrize("value", [7, None, [], {}, "x" * 101])
def test_an_invalid_memo_has_no_policy(value: object) -> None:
    assert policy_in_memo({POLICY_MEMO: value}.get) == ""


def test_an_identity_contains_the_policy() -> None:
    place = Workplace(folder="/a", root="/a", digest="abcdef012345")
    policy = short_policy("cedar:0123456789ab:ba9876543210")
    text = str(WorkerIdentity(local_process(7), short_config(place), policy))
    assert text == f"{local_process(7)}#abcdef01.cedar:012345:ba9876"
    assert WorkerIdentity.parse(text) == (local_process(7), "abcdef01", "cedar:012345:ba9876")
    for without in (str(WorkerIdentity(local_process(7), short_config(place))), "7@host.name"):
        assert WorkerIdentity.parse(without).policy == ""
