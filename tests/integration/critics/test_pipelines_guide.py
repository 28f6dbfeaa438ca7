"""The examples of docs/pipelines.md run as printed there, one of each kind, and its table names every key."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.workflows.types.goals.pipelines import AdaptiveBreak, Pipeline
from tests.support.model.goals import GoalModel
from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import ROOT, Orga
from tests.support.runs.delegates import a_cast, agent
from tests.support.runs.goals import EndedGoal, wait_for_goal
from tests.support.runs.pipelines import TaskModel

__all__ = ["home", "orga"]

GUIDE = (ROOT / "docs" / "pipelines.md").read_text()
[TOML] = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
RUBRIC = '{"scores": {"clarity": %s, "accuracy": %s}, "feedback": "say when"}'


@pytest.fixture
def config(tmp_path: Path) -> OrgaConfig:
    (tmp_path / "orga.toml").write_text(TOML)
    return load_config(tmp_path / "orga.toml")


async def pursue_example(client: Client, config: OrgaConfig, players: dict[str, TaskModel], **given: Any) -> EndedGoal:
    """Pursue a goal with the agents and pipelines of the guide, and with scripted models."""
    agents = {"default": agent("default"), **{name: agent(name) for name in config.agents}}
    scripts = {
        "default": GoalModel(),
        **{name: players.get(name, TaskModel(lambda _: "never")) for name in config.agents},
    }
    async with a_cast(client, agents, scripts, pipelines=config.pipelines) as (loop, _):
        handle = await client.start_workflow(
            "GoalWorkflow", given, id=f"goal-{loop.task_queue}", task_queue=loop.task_queue
        )
        return await wait_for_goal(handle, client)


async def test_the_chain_of_the_guide(client: Client, config: OrgaConfig) -> None:
    writer = TaskModel(lambda task: "Twice (loans.md:9)." if "renewed twice" in task else "?")
    players = {"reader": TaskModel(lambda _: "a book may be renewed twice"), "writer": writer}
    pursued = await pursue_example(client, config, players, goal="When may a book be renewed?", pipeline="brief")
    assert (pursued.reason, pursued.result.output, pursued.result.confidence) == ("completed", "Twice (loans.md:9).", 0)
    assert writer.tasks[0].startswith("Put it into one sentence, with its source.")


async def test_the_map_of_the_guide(client: Client, config: OrgaConfig) -> None:
    reader = TaskModel(lambda task: next(name for name in ("opening", "loans", "fees") if f"{name}.md" in task))
    editor = TaskModel(lambda task: " | ".join(name for name in ("opening", "loans", "fees") if f"\n\n{name}" in task))
    players = {"reader": reader, "writer": editor}
    its_own = await pursue_example(client, config, players, goal="How long may things be kept?", pipeline="survey")
    assert (its_own.reason, its_own.result.output) == ("completed", "opening | loans | fees")
    given = ["loans.md", "fees.md"]
    ours = await pursue_example(client, config, players, goal="How long?", pipeline="survey", inputs=given)
    assert ours.result.output == "loans | fees"


async def test_the_director_of_the_guide(client: Client, config: OrgaConfig) -> None:
    writer = TaskModel(lambda task: "Books, from Tuesday on." if "say when" in task else "Books.")
    reviewer = TaskModel(lambda task: RUBRIC % ((0.9, 0.8) if "Tuesday" in task else (0.9, 0.5)))
    players = {"writer": writer, "reviewer": reviewer}
    pursued = await pursue_example(
        client, config, players, goal="Tell newcomers what the library lends", pipeline="leaflet"
    )
    assert (pursued.reason, pursued.result.output) == ("completed", "Books, from Tuesday on.")
    assert [step.score for step in pursued.result.steps] == [0.66, None, 0.84, None]


@pytest.mark.timeout(400)
def test_a_pipeline_on_the_command_line(orga: Orga) -> None:
    """The embedded offline model quotes the note. Nothing more is required of it here."""
    (orga.folder / "orga.toml").write_text(TOML.replace("opening.md", "notes.md"))
    done = orga(
        "goal", "What is the retry limit?", "--pipeline", "survey", "--input", "notes.md", "--id", "s", "--json"
    )
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert [(step["id"], step["status"]) for step in result["steps"]] == [("map-1", "done"), ("reduce", "done")]
    assert "plan of pipeline survey: 2 steps" in orga("journal", "s").out
    assert "map-1 reader: Say what the document" in orga("steps", "s").out
    verified = orga("verify", "s")
    assert verified.code == 0, verified.out + verified.err
    for arguments, expected in (
        (
            ("--pipeline", "brie"),
            "there is no pipeline 'brie'; did you mean 'brief'? there are: brief, leaflet, survey",
        ),
        (("--input", "notes.md"), "inputs need a pipeline"),
        (("--pipeline", "brief", "--skills", "read_file"), "leave skills out"),
    ):
        refused = orga("goal", "x", *arguments)
        assert (refused.code, expected in refused.err) == (2, True), refused.err


def test_the_table_of_the_guide_names_every_key_with_its_default() -> None:
    rows = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", GUIDE, re.MULTILINE)}
    fields = Pipeline.model_fields
    assert list(rows) == list(fields)
    reported = {name: json.loads(reported[1:-1]) for name, reported in rows.items() if reported.startswith("`")}
    reported |= {name: json.loads(reported) for name, reported in rows.items() if reported[:1].isdigit()}
    reported |= dict.fromkeys((name for name, reported in rows.items() if reported == "none"), None)
    known = Pipeline.model_construct().model_dump(mode="json")
    assert reported == {name: value for name, value in known.items() if name != "kind"}
    pursue_example = tomllib.loads("x = " + re.findall(r"`(\{ min_rounds .*?\})`", GUIDE)[0])["x"]
    assert pursue_example == AdaptiveBreak().model_dump()
