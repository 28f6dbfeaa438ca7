"""Pictures and documents of a run: in by the task and by tools, to the model as bytes, in the history as references."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory

from orga.activities.adapters.blob_folder import BlobFolder
from orga.activities.adapters.models.registry import ModelRegistry
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.media import Media, digest_of
from orga.activities.ports import Tool
from orga.activities.tools_api import tool
from orga.client.errors import Refused
from orga.client.runs.attachments import kept_attachments
from orga.workflows.decisions.goals.begin import initial_goal_state
from orga.workflows.types.goals.goal_input import parse_goal
from orga.workflows.types.json_text import as_object, as_objects, as_text
from orga.workflows.types.setup import Setup
from tests.support.model.chat_server import Calls, ChatServer, Says, ScriptedReply, chat_server
from tests.support.model.named import Named
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop, histories_of
from tests.support.runs.sessions import begin, close_session
from tests.support.values.pictures import a_png

PHOTO, CHART = a_png(40, 30), a_png(60, 20, 5)


@tool(effect="read_only")
def draw() -> list[Any]:
    """Draw a chart."""
    return ["The chart:", Media(CHART, "chart.png")]


@tool(effect="read_only")
def photograph() -> Media:
    """Take a large picture."""
    return Media(a_png(1_000, 1_000))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state folder, which the client uses too."""
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(name="store")
def a_store(tmp_path: Path) -> BlobFolder:
    return BlobFolder(tmp_path / "blobs")


@asynccontextmanager
async def a_looking_loop(
    client: Client,
    store: BlobFolder,
    *replies: ScriptedReply,
    tools: tuple[Tool, ...] = (),
    setup: Setup = WORKER_FACTS,
) -> AsyncGenerator[tuple[Loop, ChatServer]]:
    """Run a worker whose model is a server that records its requests."""
    with chat_server(*replies) as server:
        registry = ModelRegistry({"OPENAI_COMPATIBLE_BASE_URL": server.url}, blobs=store)
        model = Named(*registry.resolve("openai-compatible:m"))
        async with a_loop(client, model, *tools, blobs=store, setup=setup) as loop:
            yield loop, server
        await registry.close()


async def attached(store: BlobFolder, *data: bytes) -> list[dict[str, Any]]:
    kept = await kept_attachments([Media(each, f"photo-{n}.png") for n, each in enumerate(data)], store)
    return [each.model_dump(exclude_unset=True) for each in kept]


def pictures_in(message: dict[str, Any]) -> list[bytes]:
    """Return the base64 of the pictures in a message."""
    addresses = (as_text(as_object(part.get("image_url")).get("url")) for part in as_objects(message["content"]))
    return [address.partition(",")[2].encode() for address in addresses if address]


def assert_no_bytes_in(histories: list[WorkflowHistory], *pictures: bytes) -> None:
    recorded = b"".join(event.SerializeToString() for history in histories for event in history.events)
    for picture in pictures:
        assert digest_of(picture).encode() in recorded
        assert picture[-30:] not in recorded
        assert b64encode(picture)[:40] not in recorded


async def test_pictures_of_a_task_and_of_a_tool_reach_the_model(client: Client, store: BlobFolder) -> None:
    async with a_looking_loop(client, store, Calls("draw", {}), Says(["seen"]), tools=(PythonFunction(draw),)) as (
        loop,
        server,
    ):
        ran = await loop.run({"task": "compare", "attachments": await attached(store, PHOTO)})
        shown = await ran.handle.query("conversation", {})

    assert ran.result.output == "seen"
    first, second = server.requests
    assert [pictures_in(message) for message in first["messages"][-1:]] == [[b64encode(PHOTO)]]
    *_, result, picture = second["messages"]
    assert f"The chart:\n[image chart.png, 60x20, {len(CHART)} bytes]" in result["content"]
    assert (result["role"], picture["role"], pictures_in(picture)) == ("tool", "user", [b64encode(CHART)])
    assert_no_bytes_in(ran.histories, PHOTO, CHART)
    assert digest_of(PHOTO) in shown[1]["text"]
    assert digest_of(CHART) in shown[3]["text"]


async def test_a_picture_survives_continue_as_new_and_a_lost_cache(
    client: Client, store: BlobFolder, tmp_path: Path
) -> None:
    (tmp_path / "p.png").write_bytes(CHART)
    many = WORKER_FACTS.model_copy(update={"roll_over_events": 20})
    replies = (Calls("read_file", {"path": "p.png"}), Calls("draw", {}), Calls("draw", {}), Says(["seen"]))
    tools: tuple[Tool, ...] = (PythonFunction(draw), ReadFile(FileRoot(tmp_path)))
    async with a_looking_loop(client, store, *replies, tools=tools, setup=many) as (loop, server):
        ran = await loop.run({"task": "compare", "attachments": await attached(store, PHOTO)})

    assert (ran.result.output, len(ran.histories) > 1) == ("seen", True)
    last = server.requests[-1]["messages"]
    assert [each for message in last for each in pictures_in(message)] == [b64encode(PHOTO), *[b64encode(CHART)] * 3]
    assert_no_bytes_in(ran.histories, PHOTO, CHART)


async def test_a_run_goes_on_without_a_picture_that_is_gone(client: Client, store: BlobFolder) -> None:
    given = await attached(store, PHOTO)
    store.path(digest_of(PHOTO)).unlink()
    async with a_looking_loop(client, store, Says(["seen"])) as (loop, server):
        ran = await loop.run({"task": "look", "attachments": given})

    assert ran.result.output == "seen"
    assert "photo-0.png' (image/png" in json.dumps(server.requests[0]["messages"])
    assert "is gone: the store does not have it any more" in json.dumps(server.requests[0]["messages"])


@pytest.mark.parametrize("strategy", ["sliding_window", "observation_masking"])
async def test_old_pictures_leave_the_context(client: Client, store: BlobFolder, strategy: str) -> None:
    tools = (PythonFunction(photograph),)
    async with a_looking_loop(client, store, Calls("photograph", {}), tools=tools) as (loop, server):
        await loop.run("look", context_token_budget=5_000, context_strategy=strategy, max_iterations=8)

    shown = [sum(len(pictures_in(m)) for m in request["messages"]) for request in server.requests]
    assert (len(shown), max(shown)) == (8, 3)


async def test_a_picture_that_the_task_names_is_looked_up_and_shown(
    client: Client, store: BlobFolder, tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(PHOTO)
    async with a_looking_loop(client, store, Says(["seen"]), tools=(ReadFile(FileRoot(tmp_path)),)) as (loop, server):
        await loop.run("what is on ./photo.png?", pre_hydration={})

    _, _, looked_up = server.requests[0]["messages"]
    assert (pictures_in(looked_up), looked_up["content"][0]["type"]) == ([b64encode(PHOTO)], "text")


async def test_attachments_over_the_context_are_refused_before_the_first_call(
    client: Client, store: BlobFolder
) -> None:
    given = await attached(store, a_png(1_000, 1_000))
    async with a_looking_loop(client, store, Says(["seen"])) as (loop, server):
        handle = await loop.start({"task": "look", "attachments": given}, context_token_budget=1_000)
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()

    assert "attachments: they take about 1,334 tokens, over the context_token_budget of 1,000" in str(
        failed.value.cause
    )
    assert server.requests == []


async def test_a_message_of_a_session_has_pictures(client: Client, home: Path) -> None:
    async with a_looking_loop(client, BlobFolder(home / "blobs"), Says(["one"]), Says(["two"])) as (loop, server):
        session = await begin(loop)
        await session.send("see", attachments=[PHOTO])
        answer = await session.send("and this?", attachments=[Media(CHART, "chart.png")])
        with pytest.raises(Refused, match="a message that steers has none"):
            await session.send("and this?", attachments=[PHOTO], when_busy="steer")
        await close_session(session)

    assert answer.output == "two"
    shown = [each for message in server.requests[-1]["messages"] for each in pictures_in(message)]
    assert shown == [b64encode(PHOTO), b64encode(CHART)]
    assert_no_bytes_in(await histories_of(client, session.id), PHOTO, CHART)


async def test_a_goal_has_pictures(client: Client, store: BlobFolder) -> None:
    (given,) = await attached(store, PHOTO)
    goal = parse_goal({"goal": "look", "attachments": [given]})
    state = initial_goal_state(goal, "o", datetime(2026, 1, 1, tzinfo=UTC))
    assert [part.digest for part in state.conversation.messages[0].media] == [digest_of(PHOTO)]
