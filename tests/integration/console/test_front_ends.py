"""AG-UI, OpenAI Responses and MCP over HTTP on a real server, driven by the clients that others publish."""

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote
from uuid import uuid4

import httpx2
import openai
import pytest
from mcp import Client as McpClient
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestParams, ElicitResult
from openai import AsyncOpenAI
from starlette.requests import HTTPConnection
from temporalio.client import Client

from orga.activities.adapters.blob_folder import BlobFolder
from orga.activities.media import digest_of
from orga.activities.ports import ModelRequest, ThinkingListener
from orga.client.config.workplace import set_client_home
from orga.client.console.doors import ROLES, Doors, Limits, Visitor
from orga.client.errors import RunNotFound
from orga.client.frontends.agui import agui_adapter
from orga.client.frontends.mounted import mcp_adapter
from orga.client.frontends.responses import responses_adapter
from orga.client.frontends.threads import own_id
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle
from orga.client.runs.sessions import SessionHandle, start_session
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from tests.support.console import Served, a_console
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import SteadyModel
from tests.support.parts.front_ends import front_end_path, front_ends
from tests.support.runs.approvals import Asks
from tests.support.runs.deferred import a_check
from tests.support.runs.delegates import agent, delegates
from tests.support.runs.loop import a_loop
from tests.support.values.pictures import a_png
from tests.support.web.agui import AguiClient, agui_client, assistant_ui_messages

WORDS = "one two three four five six seven eight"


class Model:
    """Does what the last message says: `look`, `pay`, `pay twice`, `ask`, `delegate TASK`, `slow`, `hold`."""

    def __init__(self) -> None:
        self.hold = Hold()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        last = request.messages[-1]
        if goal_prompt_in(last.text):
            return await SteadyModel(frozenset({"look"}), lambda _: None).complete(request, on_text)
        if last.role == "tool":
            return answers("all done")
        if last.media:
            return answers(f"{last.text} {' '.join(part.line(with_digest=True) for part in last.media)}")
        word, _, rest = last.text.partition(" ")
        match word:
            case "look":
                return calls("look", reply_text="Let me see.")
            case "pay":
                return calls(*["pay"] * (2 if rest else 1), cents=5)
            case "ask":
                return calls("ask_user", question="Which one?", options=["red", "blue"])
            case "check":
                return calls("check", person="ada")
            case "delegate":
                return delegates("helper", task=rest)
            case "slow":
                return await self._streamed(on_text)
            case "hold":
                on_text("It begins")
                return await self.hold.then(answers("It begins well"))
            case _:
                return answers(f"You said: {last.text}")

    async def _streamed(self, on_text: Callable[[str], None]) -> Reply:
        if isinstance(on_text, ThinkingListener):
            on_text.add_thinking("Counting.")
        for word in WORDS.split(" "):
            on_text(f"{word} ")
            await asyncio.sleep(0.1)
        return answers(WORDS)


AGENTS = {
    "default": agent("default", "helper", tools=("look", "pay", "check", "ask_user")),
    "helper": agent("helper", tools=("pay",)),
}


REMOVED = set[str]()
"""Names whose tokens were removed."""


class Tenants(Doors):
    """Doors for people of several tenants and roles: a bearer token is a name, and what the name may do."""

    def visitor(self, connection: HTTPConnection) -> Visitor | None:
        name, _, rest = connection.headers.get("authorization", "").removeprefix("Bearer ").partition("-")
        role, _, tenant = rest.partition("-")
        if name in REMOVED:
            return None
        if role not in ROLES:
            return super().visitor(connection)
        roles = ROLES[: ROLES.index(cast("Any", role)) + 1]
        return Visitor(name, roles, frozenset({tenant}) if tenant else None)


MANY = Limits(writes=1_000, starts=1_000)


class Stage(NamedTuple):
    console: Served
    queue: str
    model: Model
    pay: FakeTool
    sdks: dict[str, AsyncOpenAI]

    def openai(self, token: str = "ann-approver") -> AsyncOpenAI:
        if token not in self.sdks:
            self.sdks[token] = AsyncOpenAI(base_url=f"{self.console.base}/v1", api_key=token, max_retries=0)
        return self.sdks[token]

    async def mcp(self, token: str, *arguments: str) -> Any:
        """Send one request by the inspector of MCP, and return the JSON that it prints."""
        inspector = str(front_ends() / ".bin" / "mcp-inspector")
        where = (
            "--cli",
            f"{self.console.base}/mcp",
            "--transport",
            "http",
            "--header",
            f"Authorization: Bearer {token}",
        )
        env = os.environ | {"PATH": front_end_path()}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(inspector, *where, *arguments, stdout=pipe, stderr=pipe, env=env)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        return json.loads(out or err)

    def agui(self, token: str = "ann-approver", thread: str = "") -> AbstractAsyncContextManager[AguiClient]:
        return agui_client(f"{self.console.base}/agui/default", thread or str(uuid4()), token)


@pytest.fixture(scope="module")
async def stage(client: Client) -> AsyncGenerator[Stage]:
    await register_missing(client)
    model, pay, facts = Model(), FakeTool("pay", "paid"), Setup(agent="", model="", search_attributes=True)
    adapters = agui_adapter(), mcp_adapter(), responses_adapter(lambda: ["default", "helper"])
    own = Client(**client.config())
    async with (
        a_loop(
            client, model, FakeTool("look", "a lamp"), pay, a_check(), engine=Asks(), setup=facts, agents=AGENTS
        ) as loop,
        a_console(own, loop.task_queue, adapters=adapters, doors_kind=Tenants, limits=MANY) as console,
    ):
        set_client_home(own, loop.task_queue, None)
        stage = Stage(console, loop.task_queue, model, pay, {})
        yield stage
        for sdk in stage.sdks.values():
            await sdk.close()


async def test_a_thread_has_text_thinking_calls_and_results(stage: Stage) -> None:
    async with stage.agui() as client:
        slow_run = await client.run(say="slow")
        looked = await client.run(say="look")
    text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert (slow_run.error, slow_run.result["output"], slow_run.types[-1]) == (None, WORDS, "RUN_FINISHED")
    assert slow_run.texts("reasoning") == ["Counting."]
    assert sum(event["type"] == "TEXT_MESSAGE_CONTENT" for event in slow_run.events) > 1
    assert slow_run.state["budgets"]["max_iterations"] == 25
    called = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    assert looked.types == ["RUN_STARTED", *text, *called, *text, "RUN_FINISHED"]
    assert looked.texts("tool") == ["a lamp"]
    assert looked.texts("assistant") == [WORDS, "Let me see.", "all done"]


async def test_a_resumed_run_can_give_a_call_its_result(stage: Stage) -> None:
    async with stage.agui() as client:
        waiting = await client.run(say="check")
        misfit = await client.run(resume={"result": "fine", "error": "no"})
        done = await client.run(resume={"result": {"score": 640}})
    [interrupt] = waiting.interrupts
    assert (interrupt["reason"], interrupt["metadata"]["orga"]["kind"]) == ("input_required", "result")
    assert set(interrupt["responseSchema"]["properties"]) == {"result", "error"}
    assert (misfit.types[-1], "result must fit" in str(misfit.events[-1])) == ("RUN_ERROR", True)
    assert (done.error, done.texts("tool")[-1:]) == (None, ['{"score":640}'])


async def test_what_waits_is_one_interrupt_for_each_question_and_resume_decides_it(stage: Stage) -> None:
    before = len(stage.pay.calls)
    async with stage.agui() as client:
        held = await client.run(say="pay twice")
        [interrupt] = held.interrupts
        early = await client.run(say="meanwhile", run="early")
        paid = await client.run(resume={"approved": True})
        asked = await client.run(say="ask")
        answered = await client.run(resume={"answer": "red"})
        refused = await client.run(say="pay")
        denied = await client.run(cancel=True)
        run_id = denied.state["run"]
    assert held.types[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert (interrupt["reason"], len(interrupt["metadata"]["orga"]["calls"])) == ("confirmation", 2)
    assert interrupt["responseSchema"]["required"] == ["approved"]
    assert interrupt["expiresAt"]
    assert "pending interrupt" in (early.error or "")
    assert (paid.types[1:3], paid.texts("tool")) == (["TOOL_CALL_RESULT", "TEXT_MESSAGE_START"], ["paid", "paid"])
    assert asked.interrupts[0]["responseSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
    assert (answered.interrupts, answered.result["output"]) == ([], "all done")
    assert refused.interrupts[0]["toolCallId"] == refused.messages[-1]["toolCalls"][0]["id"]
    assert denied.result["output"] == "all done"
    assert len(stage.pay.calls) == before + 2
    journal = [entry async for entry in read_journal(stage.console.console.client, run_id)]
    assert {e.data["by"] for e in journal if e.data.get("kind") == "send"} == {"ann"}
    assert {e.data["approver"] for e in journal if e.event == "ApprovalResolved" and "approver" in e.data} == {"ann"}


async def test_a_delegate_is_a_subagent_and_its_held_call_an_interrupt(stage: Stage) -> None:
    async with stage.agui() as client:
        held = await client.run(say="delegate pay")
        done = await client.run(resume={"approved": True})
    child = held.interrupts[0]["subagentRunId"]
    assert (held.types[-3:], done.error) == (["SUBAGENT_FINISHED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"], None)
    assert done.result["output"] == "all done"
    assert {m["content"] for m in done.messages if m.get("subagentRunId") == child and m.get("content")} >= {"paid"}


async def test_an_input_of_ag_ui_that_does_not_fit_names_its_keys(stage: Stage) -> None:
    answer = await stage.console.http.post("/agui/default", json={"threadId": 5})
    assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, "threadId")
    assert "threadId: Input should be a valid string; runId: Field required" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("content", "problem"), [("", "must not be empty"), ("x" * 60_000, "must not be longer than 50000 bytes")]
)
async def test_a_message_that_no_session_takes_starts_none(stage: Stage, content: str, problem: str) -> None:
    thread = str(uuid4())
    session = AgentHandle(stage.console.console.client, own_id("session", Visitor("ann"), "agui", "default", thread))
    async with stage.agui(thread=thread) as client:
        refused = await client.run(say=content)
        with pytest.raises(RunNotFound):
            await session.describe()
        taken = await client.run(say="hello")
    assert (refused.types, problem in str(refused.events[-1])) == (["RUN_STARTED", "RUN_ERROR"], True)
    assert taken.result["output"] == "You said: hello"
    assert (await session.describe()).id == session.id


async def test_without_its_package_ag_ui_names_the_extra(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", dict[str, None]().get)
    answer = await stage.console.http.post("/agui/default", json={})
    assert (answer.status_code, "orga[agui]" in answer.json()["detail"]) == (501, True)


async def test_a_goal_shows_its_plan_and_the_same_request_shows_it_again(stage: Stage) -> None:
    async with stage.agui() as client:
        pursued = await client.run(say="find the lamp", forwarded={"kind": "goal"})
        again = await client.run(forwarded={"kind": "goal"})
    plans = [event["content"] for event in pursued.events if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert {step["status"] for step in plans[0]["steps"]} == {"open"}
    assert {step["status"] for step in plans[-1]["steps"]} == {"done"}
    assert pursued.result == again.result
    assert pursued.result["output"] == "the final answer"
    assert again.texts("assistant") == ["the final answer"]


async def test_assistant_ui_talks_decides_and_leaves_a_question(stage: Stage) -> None:
    before = len(stage.pay.calls)
    steps = ("say:slow", "say:pay", 'resume:{"approved":true}', "say:pay twice", "leave:never mind", "say:ask")
    given = (f"{stage.console.base}/agui/default", "ann-approver", *steps, 'resume:{"answer":"red"}')
    slow, held, paid, again, left, asked, answered = await assistant_ui_messages(*given)
    assert [part["text"] for part in slow["content"]] == ["Counting.", WORDS]
    assert (held["status"]["reason"], len(held["interrupts"]), len(again["interrupts"])) == ("interrupt", 1, 1)
    assert [each["content"][-1]["text"] for each in (paid, left, answered)] == [
        "all done",
        "You said: never mind",
        "all done",
    ]
    assert (asked["status"]["reason"], answered["interrupts"]) == ("interrupt", [])
    assert len(stage.pay.calls) == before + 1


async def test_a_lost_connection_loses_nothing_and_repeats_nothing(stage: Stage) -> None:
    async with stage.agui() as client:
        lost = await client.run(say="slow", run="run-1", lose="TEXT_MESSAGE_CONTENT")
        again = await client.run(run="run-1")
        turns = await SessionHandle(stage.console.console.client, again.state["run"]).turns()
    assert lost.types[-1] != "RUN_FINISHED"
    assert (again.texts("assistant"), again.result["output"]) == ([WORDS], WORDS)
    assert [turn.output for turn in turns] == [WORDS]


async def test_responses_are_the_turns_of_a_session(stage: Stage) -> None:
    sdk = stage.openai()
    assert [model.id async for model in sdk.models.list()] == ["default", "helper"]
    first = await sdk.responses.create(model="default", input="hello")
    second = await sdk.responses.create(model="default", input="look", previous_response_id=first.id)
    assert (first.status, first.output_text, first.usage and first.usage.total_tokens) == (
        "completed",
        "You said: hello",
        110,
    )
    assert ([item.type for item in second.output], second.output_text) == (["mcp_call", "message"], "all done")
    session = first.id.removeprefix("resp_").rpartition(".")[0]
    journal = [entry async for entry in read_journal(stage.console.console.client, session)]
    assert [entry.data["by"] for entry in journal if entry.data.get("kind") == "send"] == ["ann", "ann"]
    assert (await sdk.responses.retrieve(second.id)).output == second.output
    whole = await sdk.responses.create(
        model="default",
        instructions="Be kind.",
        input=[
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ],
    )
    assert "[system]\nBe kind." in whole.output_text
    assert whole.output_text.endswith("c")


@pytest.fixture
def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobFolder:
    """Return the store of the console."""
    monkeypatch.setenv("ORGA_HOME", str(tmp_path))
    return BlobFolder(tmp_path / "blobs")


PICTURE, PLAN = a_png(), b"%PDF-1.4 /Type /Page ".ljust(3_000_000, b" ")
PICTURE_LINE = f"[image, 4x3, {len(PICTURE)} bytes, {digest_of(PICTURE)}]"
PLAN_LINE = f"[document plan.pdf, 1 page, 3.0 MB, {digest_of(PLAN)}]"


def an_image(data: bytes = PICTURE, **fields: Any) -> dict[str, Any]:
    url = f"data:image/png;base64,{b64encode(data).decode()}"
    return {"type": "input_image", "detail": "auto", "image_url": url} | fields


def a_user(*content: dict[str, Any]) -> Any:
    return {"role": "user", "content": content}


async def test_pictures_and_documents_of_responses_reach_the_model(stage: Stage, blobs: BlobFolder) -> None:
    sdk = stage.openai()
    data = f"data:application/pdf;base64,{b64encode(PLAN).decode()}"
    plan = {"type": "input_file", "filename": "plan.pdf", "file_data": data}
    words = {"type": "input_text", "text": "What is it?"}
    first = await sdk.responses.create(model="default", input=[a_user(words, an_image(text="a lamp"))])
    second = await sdk.responses.create(model="default", input=[a_user(plan)], previous_response_id=first.id)
    answer: Any = {"role": "assistant", "content": "A lamp."}
    whole = await sdk.responses.create(
        model="default", input=[a_user(*[an_image()] * 9), a_user(plan), answer, a_user(words, an_image())]
    )
    assert first.output_text == f"What is it? {PICTURE_LINE}"
    assert second.output_text == f"{PLAN_LINE.partition(', sha')[0]}] {PLAN_LINE}"
    assert whole.output_text.endswith(" ".join(["What is it?", *[PICTURE_LINE] * 8, PLAN_LINE, PICTURE_LINE]))
    assert [await blobs.get(digest_of(each)) for each in (PICTURE, PLAN)] == [PICTURE, PLAN]


UNUSABLE: dict[str, tuple[list[Any], str]] = {
    "an address": ([an_image(image_url="https://a.example/b.png")], "no address is fetched. Send the bytes"),
    "another address": ([an_image(image_url="data:image/png,https://a.example")], "no address is fetched. Send"),
    "no picture": ([an_image(b"<svg/>")], "is no PNG, JPEG, GIF, WebP or PDF. Convert it"),
    "nothing": ([an_image(b"")], "is no PNG, JPEG, GIF, WebP or PDF. Convert it"),
    "a picture that is too large": ([an_image(PICTURE.ljust(4_000_000))], "the limit is 3.8 MB. Scale it down"),
    "too many": ([an_image()] * 11, "there are 11, and the limit is 10. Leave some out"),
    "an uploaded file": ([{"type": "input_file", "file_id": "file-1"}], "has parts that are no text, picture or"),
    "a bare text": ([an_image(), "What is it?"], "has parts that are no text, picture or"),
    "no content": ([], "must have a text, a picture or a document of a user"),
    "a sound": ([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}], "has parts that are no text"),
}


@pytest.mark.parametrize(("content", "problem"), UNUSABLE.values(), ids=UNUSABLE)
@pytest.mark.usefixtures("blobs")
async def test_what_cannot_be_attached_is_refused(stage: Stage, content: list[Any], problem: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await stage.openai().responses.create(model="default", input=[a_user(*content)])
    assert problem in str(refused.value)


async def test_only_a_message_may_be_as_long_as_a_document(stage: Stage) -> None:
    headers = {"Authorization": "Bearer ann-approver", "X-Orga-Console": "1"}
    async with httpx2.AsyncClient(base_url=stage.console.base, headers=headers) as client:
        message = await client.post("/v1/responses", json={"model": "default", "input": "x" * 33_000_000})
        other = await client.post("/api/v1/markdown", json={"text": "x" * 2_000_000})
    assert (message.status_code, other.status_code) == (413, 413)
    assert "must not be longer than 32,000,000 bytes" in message.text


async def test_pictures_of_ag_ui_reach_the_model_once(stage: Stage, blobs: BlobFolder) -> None:
    words = {"type": "text", "text": "What is it?"}
    source = {"type": "data", "value": b64encode(PICTURE).decode(), "mimeType": "image/png"}
    picture: dict[str, Any] = {"type": "image", "source": source, "metadata": {"filename": "lamp.png"}}
    async with stage.agui() as client:
        shown = await client.run(say=[words, picture])
        again = await client.run()
        linked = await client.run(
            say=[words, {"type": "image", "source": {"type": "url", "value": "https://a.example"}}]
        )
    assert (shown.error, shown.result["output"]) == (
        None,
        f"What is it? {PICTURE_LINE.replace('[image', '[image lamp.png')}",
    )
    assert again.texts("assistant") == shown.texts("assistant")
    assert (linked.types[-1], "no address is fetched. Send the bytes" in str(linked.events[-1])) == ("RUN_ERROR", True)
    assert await blobs.get(digest_of(PICTURE)) == PICTURE


async def test_a_picture_of_assistant_ui_reaches_the_model(stage: Stage, blobs: BlobFolder) -> None:
    address = f"{stage.console.base}/agui/default"
    [shown] = await assistant_ui_messages(address, "ann-approver", f"see:{an_image()['image_url']}")
    line = PICTURE_LINE.replace("[image", "[image lamp.png")
    assert shown["content"] == [{"type": "text", "text": f"What is it? {line}"}]
    assert await blobs.get(digest_of(PICTURE)) == PICTURE


async def test_a_goal_of_ag_ui_begins_with_a_picture_and_its_guidance_has_none(stage: Stage, blobs: BlobFolder) -> None:
    source = {"type": "data", "value": b64encode(PICTURE).decode(), "mimeType": "image/png"}
    content = [{"type": "text", "text": "Look around"}, {"type": "image", "source": source}]
    async with stage.agui() as client:
        done = await client.run(say=content, forwarded={"kind": "goal"})
        guided = await client.run(say=[{"type": "text", "text": "Like this"}, *content[1:]])
    assert done.error is None
    [goal] = {event["snapshot"]["run"] for event in done.events if event["type"] == "STATE_SNAPSHOT"}
    shown = await AgentHandle(stage.console.console.client, goal).conversation()
    assert digest_of(PICTURE) in "".join(message.text for message in shown)
    assert "guidance for a run has no pictures" in str(guided.events[-1])


async def test_a_stream_can_be_read_again_from_any_event(stage: Stage) -> None:
    sdk = stage.openai()
    begun = await sdk.responses.create(model="default", input="slow", background=True)
    live = [event async for event in await sdk.responses.retrieve(begun.id, stream=True)]
    numbers = [event.sequence_number for event in live]
    assert begun.status == "in_progress"
    assert numbers == sorted(set(numbers))
    assert live[-1].type == "response.completed"
    text = "".join(event.delta for event in live if event.type == "response.output_text.delta")
    assert text == WORDS
    for at, event in enumerate(live[:-1]):
        after = await sdk.responses.retrieve(begun.id, stream=True, starting_after=event.sequence_number)
        rest = [each async for each in after]
        had = "".join(each.delta for each in live[: at + 1] if each.type == "response.output_text.delta")
        assert had + "".join(each.delta for each in rest if each.type == "response.output_text.delta") == WORDS
        kinds = [each.type for each in rest if each.type != "response.output_text.delta"]
        assert kinds == [each.type for each in live[at + 1 :] if each.type != "response.output_text.delta"]


async def test_what_waits_is_a_message_with_a_link_to_the_inbox(stage: Stage) -> None:
    sdk = stage.openai()
    held = await sdk.responses.create(model="default", input="pay")
    assert (held.status, f"{stage.console.base}/inbox" in held.output_text) == ("in_progress", True)
    assert [getattr(item, "status", None) for item in held.output] == ["in_progress", "in_progress"]
    stream = await sdk.responses.retrieve(held.id, stream=True)
    events, decided = list[Any](), False
    async for event in stream:
        events.append(event)
        if not decided and event.type == "response.output_item.done":
            decided = True
            session = SessionHandle(stage.console.console.client, held.id.removeprefix("resp_").rpartition(".")[0])
            [item] = (await session.status()).pending_approvals
            await session.approve(item.approval_id, by="bob")
    assert events[-1].response.output_text == "all done"
    other = await sdk.responses.create(model="default", input="pay")
    assert (await sdk.responses.cancel(other.id)).status == "cancelled"


OTHERS: list[tuple[str, str, dict[str, Any], type[openai.APIStatusError]]] = [
    ("a viewer starts", "eve-viewer", {"model": "default", "input": "x"}, openai.PermissionDeniedError),
    ("nobody", "eve", {"model": "default", "input": "x"}, openai.AuthenticationError),
    ("no such agent", "eve-operator", {"model": "nobody", "input": "x"}, openai.NotFoundError),
    ("no text", "eve-operator", {"model": "default", "input": []}, openai.BadRequestError),
    ("too long", "eve-operator", {"model": "default", "input": "x" * 60_000}, openai.BadRequestError),
    ("tools", "eve-operator", {"input": "x", "tools": [{"type": "web_search"}]}, openai.BadRequestError),
    ("a model that is no text", "eve-operator", {"model": 5, "input": "x"}, openai.BadRequestError),
    ("a forged id", "eve-operator", {"input": "x", "previous_response_id": "resp_../x.1"}, openai.NotFoundError),
]


@pytest.mark.parametrize(("token", "given", "error"), [case[1:] for case in OTHERS], ids=[case[0] for case in OTHERS])
async def test_a_refusal_has_the_form_of_openais_errors(
    stage: Stage, token: str, given: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as refused:
        await stage.openai(token).responses.create(**given)
    assert refused.value.body
    assert {"message", "type", "param", "code"} == set(cast("dict[str, Any]", refused.value.body))


async def test_mcp_serves_each_visitor_by_its_role_and_tenant(stage: Stage) -> None:
    tools = await stage.mcp("eve-viewer", "--method", "tools/list")
    assert {tool["name"] for tool in tools["tools"]} == {"run_state", "result"}

    def call(token: str, tool: str, given: str) -> Coroutine[Any, Any, Any]:
        return stage.mcp(token, "--method", "tools/call", "--tool-name", tool, "--tool-arg", given)

    held = (await call("ann-operator-north", "start_run", "task=pay"))["structuredContent"]
    assert (held["state"], held["waits"][0]["kind"]) == ("waiting", "approval")
    other = await call("eve-approver-south", "run_state", f"run_id={held['run_id']}")
    assert "no run" in other["content"][0]["text"]
    assert "tools" not in await stage.mcp("nobody", "--method", "tools/list")
    await stage.console.console.client.get_workflow_handle(held["run_id"]).terminate()


async def test_each_write_over_mcp_counts(stage: Stage) -> None:
    shared, limits = stage.console.console, Limits(writes=2, starts=1)
    queue, adapters = shared.connection.task_queue, (mcp_adapter(),)
    tool = ("--method", "tools/call", "--tool-name")
    async with a_console(shared.client, queue, adapters=adapters, doors_kind=Tenants, limits=limits) as strict:
        strict_stage = stage._replace(console=strict)
        held = await strict_stage.mcp("ann-operator", *tool, "start_run", "--tool-arg", "task=pay")
        run = f"run_id={held['structuredContent']['run_id']}"
        steer = (*tool, "steer", "--tool-arg", run, "--tool-arg", "guidance=Hurry")
        first, second = [await strict_stage.mcp("ann-operator", *steer) for _ in range(2)]
    await shared.client.get_workflow_handle(run.removeprefix("run_id=")).terminate()
    assert first["content"][0]["text"].startswith("sent")
    assert second["isError"]
    assert "writes" in second["content"][0]["text"]


async def test_over_mcp_only_an_approver_decides_and_only_if_the_console_allows_it(stage: Stage) -> None:
    paid, shared = len(stage.pay.calls), stage.console.console

    def a_deciding_console(**doors: Any) -> AbstractAsyncContextManager[Served]:
        adapters = (mcp_adapter(may_decide=True),)
        queue = shared.connection.task_queue
        return a_console(shared.client, queue, adapters=adapters, doors_kind=Tenants, **doors)

    async with a_deciding_console() as open_one, a_deciding_console(read_only=True) as read_only:
        other, reading = stage._replace(console=open_one), stage._replace(console=read_only)
        for where, token, offered in [
            (stage, "ann-approver", False),
            (other, "bob-operator", False),
            (other, "ann-approver", True),
            (reading, "ann-approver", False),
        ]:
            tools = (await where.mcp(token, "--method", "tools/list"))["tools"]
            assert ("decide" in {tool["name"] for tool in tools}) == offered
        tool = ("--method", "tools/call", "--tool-name")
        held = (await other.mcp("ann-approver", *tool, "start_run", "--tool-arg", "task=pay"))["structuredContent"]
        [call] = held["waits"][0]["calls"]
        given = (f"run_id={held['run_id']}", f"wait_id={call['approval_id']}", "decision=approve")
        named = [word for each in given for word in ("--tool-arg", each)]
        refused = await other.mcp("bob-operator", *tool, "decide", *named)
        assert len(stage.pay.calls) == paid
        decided = (await other.mcp("ann-approver", *tool, "decide", *named))["structuredContent"]
    assert "content" not in refused or refused["isError"]
    assert (decided["state"], len(stage.pay.calls)) == ("completed", paid + 1)
    journal = [entry async for entry in read_journal(shared.client, held["run_id"])]
    assert {e.data["approver"] for e in journal if e.event == "ApprovalResolved" and "approver" in e.data} == {"ann"}


async def test_the_limits_of_the_console_count(stage: Stage) -> None:
    shared = stage.console.console
    async with (
        a_console(
            shared.client,
            shared.connection.task_queue,
            adapters=shared.adapters,
            doors_kind=Tenants,
            limits=Limits(writes=9, starts=1),
        ) as strict,
        AsyncOpenAI(base_url=f"{strict.base}/v1", api_key="ann-operator", max_retries=0) as sdk,
    ):
        first = await sdk.responses.create(model="default", input="hello")
        with pytest.raises(openai.RateLimitError) as refused:
            await sdk.responses.create(model="default", input="hello")
        second = await sdk.responses.create(input="and", previous_response_id=first.id)
    assert (refused.value.response.headers["retry-after"].isdecimal(), second.output_text) == (True, "You said: and")


async def test_sessions_of_another_tenant_do_not_exist(stage: Stage) -> None:
    north, south = stage.openai("ann-approver-north"), stage.openai("eve-approver-south")
    theirs = await north.responses.create(model="default", input="hello")
    asked = (
        south.responses.create(input="x", previous_response_id=theirs.id),
        south.responses.retrieve(theirs.id),
        south.responses.cancel(theirs.id),
    )
    for each in asked:
        with pytest.raises(openai.NotFoundError):
            await each
    session = theirs.id.removeprefix("resp_").rpartition(".")[0]
    async with (
        stage.agui("eve-approver-south", session) as intruder,
        stage.agui("ann-approver-north", session) as owner,
    ):
        other, own = await intruder.run(say="hi"), await owner.run(say="and now?")
    assert (other.result["output"], other.state["run"] != session) == ("You said: hi", True)
    assert own.state["run"] == session


ODD_TURNS = ("0", "01", "-1", "1.1", "٣", "1" * 20, f"000000001{'9' * 5_000}", "1\0", "x", "", "\n")


async def test_a_response_of_others_and_an_odd_id_look_like_one_that_does_not_exist(stage: Stage) -> None:
    client, url = stage.console.http, f"{stage.console.base}/v1/responses"
    theirs = await stage.openai("ann-approver-north").responses.create(model="default", input="hello")
    south = {"Authorization": "Bearer eve-approver-south", "X-Orga-Console": "1"}
    own = await stage.openai("eve-approver-south").responses.create(model="default", input="hello")
    beginning = own.id.removesuffix("1")
    odd = [f"{beginning}{turn}" for turn in ODD_TURNS]
    for given in (theirs.id, theirs.id.replace(".1", ".7"), "resp_none.1", f"resp_{'x' * 2_000}.1", "../x", *odd):
        quoted = quote(given, safe="")
        answers = [
            await client.get(f"{url}/{quoted}", headers=south),
            await client.post(f"{url}/{quoted}/cancel", headers=south, json={}),
            await client.post(url, headers=south, json={"input": "x", "previous_response_id": given or "resp_"}),
        ]
        texts = {each.json()["error"]["message"] for each in answers[: 1 if "\0" in given else 3]}
        assert {each.status_code for each in answers} == {404}, (given[:80], texts)
        if len(given) < 100 and given not in odd:
            assert texts == {f"there is no response {given!r}. Its id begins with resp_"}


async def test_an_interrupt_of_others_looks_like_one_that_does_not_exist(stage: Stage) -> None:
    thread = f"session-{uuid4()}"
    async with stage.agui("eve-approver-south", thread) as client:
        state = (await client.run(say="hello")).state
        own, messages = state["run"], list[str]()
        foreign = await start_session(
            stage.console.console.client, {"tenant": "north"}, session_id=f"{own}.1", task_queue=stage.queue
        )
        await foreign.send("hello")
        for wanted in (f"{foreign.id}/x", f"{own}.2/x", f"{own}.{'x' * 2_000}/x", f"{own}/\n", "/", ""):
            refused = await client.run(resume={"approved": True}, interrupts=[wanted])
            messages.append(refused.events[-1]["message"].replace(repr(wanted[:200]), "ID"))
        await foreign.close()
    assert set(messages) == {"resume: this thread has no interrupt ID. Take the ids of its last run"}


async def test_one_name_in_two_tenants_has_two_threads(stage: Stage) -> None:
    thread = str(uuid4())
    async with stage.agui("ann-operator-north", thread) as north, stage.agui("ann-operator-south", thread) as south:
        first, second = await asyncio.gather(north.run(say="one"), south.run(say="two"))
    assert (first.result["output"], second.result["output"]) == ("You said: one", "You said: two")
    assert first.state["run"] != second.state["run"]


async def test_nobody_gets_the_messages_of_a_thread_by_its_name(stage: Stage) -> None:
    thread, theirs = f"retries {uuid4()}", {"Authorization": "Bearer sam-operator-south"}
    body = {"kind": "session", "input": {"agent": "default"}, "id": thread}
    assert (await stage.console.post("/runs", body, headers=theirs)).status_code == 201
    follows = own_id("session", Visitor("olga"), "agui", "default", thread)
    assert (await stage.console.post("/runs", {**body, "id": follows}, headers=theirs)).status_code == 422
    start = ("--method", "tools/call", "--tool-name", "start_run", "--tool-arg", "task=x", "--tool-arg")
    refused = await stage.mcp("sam-operator-south", *start, f"run_id={follows}")
    assert "Choose another id" in refused["content"][0]["text"]
    async with stage.agui("olga-operator", thread) as client:
        assert (await client.run(say="a secret")).state["run"] == follows
    await SessionHandle(stage.console.console.client, thread).close()


async def test_a_viewer_changes_nothing(stage: Stage) -> None:
    asked = await stage.openai("ann-operator-north").responses.create(model="default", input="ask")
    viewer = {"Authorization": "Bearer vera-viewer-north", "X-Orga-Console": "1"}
    session = SessionHandle(stage.console.console.client, asked.id.removeprefix("resp_").rpartition(".")[0])
    for path in ("/agui/default", "/v1/responses", f"/v1/responses/{asked.id}/cancel", "/v1/responses/none.1/cancel"):
        refused = await stage.console.http.post(f"{stage.console.base}{path}", headers=viewer, json={})
        assert (refused.status_code, "needs the role operator" in refused.text) == (403, True)
    forms = list[str]()

    async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert context
        forms.append(params.message)
        return ElicitResult(action="accept", content={"answer": "red"})

    for token, has_forms in (("vera-viewer-north", False), ("ann-operator-north", True)):
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
            McpClient(
                streamable_http_client(f"{stage.console.base}/mcp", http_client=http), elicitation_callback=fill_in
            ) as client,
        ):
            shown = (await client.call_tool("run_state", {"run_id": session.id, "wait_s": 2})).structured_content
        assert shown
        assert bool(forms) == has_forms
        assert (shown["state"], [wait["question"] for wait in shown["waits"]]) == (
            ("running", []) if has_forms else ("waiting", ["Which one?"])
        )
    assert (await session.result_of(1)).output == "all done"


FROM_ELSEWHERE = [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]


@pytest.mark.parametrize("header", FROM_ELSEWHERE, ids=["another host", "another origin", "no origin"])
@pytest.mark.parametrize("path", ["/agui/default", "/v1/responses", "/mcp"])
async def test_a_token_counts_only_at_the_consoles_own_address(stage: Stage, path: str, header: dict[str, str]) -> None:
    login = {"Authorization": "Bearer ann-approver", "Accept": "application/json, text/event-stream"}
    answer = await stage.console.http.post(f"{stage.console.base}{path}", headers=login | header, json={})
    assert (answer.status_code, "not this console's own" in answer.text) == (403, True)


async def test_a_taken_id_reveals_nothing_of_its_run(stage: Stage) -> None:
    theirs = await stage.openai("ann-operator-north").responses.create(model="default", input="hello")
    run_id = theirs.id.removeprefix("resp_").rpartition(".")[0]
    tool = ("--method", "tools/call", "--tool-name", "start_run", "--tool-arg", "task=x")
    taken = await stage.mcp("eve-operator-south", *tool, "--tool-arg", f"run_id={run_id}")
    assert taken["content"][0]["text"].endswith(f"id: {run_id!r} is taken by another run. Choose another id")


@pytest.mark.parametrize("tenant", [["north"], {"a": 1}, 5, "south"], ids=str)
async def test_a_tenant_that_is_not_the_visitors_starts_nothing(stage: Stage, tenant: Any) -> None:
    login = {"Authorization": "Bearer ann-operator-north"}
    body = {"input": "x", "metadata": {"tenant": tenant}}
    answer = await stage.console.http.post(f"{stage.console.base}/v1/responses", headers=login, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tenant")
    async with stage.agui("ann-operator-north") as client:
        refused = await client.run(say="hi", forwarded={"tenant": tenant})
    assert refused.events[-1]["message"].startswith("tenant: must be")


async def test_a_stream_ends_with_its_token(stage: Stage) -> None:
    stream = await stage.openai("fred-operator").responses.create(model="default", input="slow", stream=True)
    types = list[str]()
    async for event in stream:
        types.append(event.type)
        REMOVED.add("fred")
    assert types
    assert "response.completed" not in types


async def test_a_turn_that_was_never_sent_does_not_exist(stage: Stage) -> None:
    sdk = stage.openai()
    first = await sdk.responses.create(model="default", input="hello")
    later = first.id.removesuffix("1") + "2"
    own = stage.console.console.client
    session = own.get_workflow_handle(first.id.removeprefix("resp_").removesuffix(".1"))
    await session.signal("send", {"text": "", "message_id": "refused"})

    async def is_refused() -> bool:
        return "InterventionRefused" in [entry.event async for entry in read_journal(own, session.id)]

    await wait_until(is_refused)
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError):
            await sdk.responses.retrieve(later, stream=cast("Any", stream))
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.create(input="hello", previous_response_id=later)


async def test_a_repeated_decision_counts_once_and_its_run_is_shown_again(stage: Stage) -> None:
    before, thread = len(stage.pay.calls), str(uuid4())
    async with stage.agui(thread=thread) as client, stage.agui(thread=thread) as other:
        await client.run(say="an earlier turn")
        [interrupt] = (await client.run(say="pay")).interrupts
        named = {"interrupts": [interrupt["id"]]}
        none = await other.run(resume={"approved": "yes"}, **named)
        both = await asyncio.gather(*(each.run(resume={"approved": True}, **named) for each in (client, other)))
        again = await other.run(resume={"approved": True}, **named)
        forged = await other.run(resume={"approved": True}, interrupts=[f"session-x/{interrupt['id']}"])
    assert "Nothing was decided" in none.events[-1]["message"]
    assert {each.result["output"] for each in (*both, again)} == {"all done"}
    assert {text for each in (*both[1:], again) for text in each.texts("assistant")} == {"all done"}
    assert "has no interrupt" in forged.events[-1]["message"]
    assert len(stage.pay.calls) == before + 1


async def test_an_operator_cannot_approve(stage: Stage) -> None:
    async with stage.agui("bob-operator") as client:
        await client.run(say="pay")
        refused = await client.run(resume={"approved": True})
        denied = await client.run(say="x")
    assert (refused.types, "needs the role approver" in refused.events[-1]["message"]) == (
        ["RUN_STARTED", "RUN_ERROR"],
        True,
    )
    assert denied.result is None


async def test_a_run_goes_on_when_its_client_is_gone_and_others_are_not_delayed(stage: Stage) -> None:
    sdk = stage.openai()
    stream = await sdk.responses.create(model="default", input="hold", stream=True)
    first = await anext(aiter(stream))
    await stream.close()
    held = cast("Any", first).response.id
    later = await sdk.responses.create(input="later", previous_response_id=held, background=True)
    assert (await sdk.responses.cancel(later.id)).status == "in_progress"
    many = await asyncio.gather(*(sdk.responses.create(model="default", input=f"n{n}") for n in range(20)))
    assert [each.output_text for each in many] == [f"You said: n{n}" for n in range(20)]
    stage.model.hold.go.set()
    again = await sdk.responses.retrieve(held, stream=True)
    assert [each async for each in again][-1].type == "response.completed"
