"""Values of an application pass its codec, storage and failure converter, and our readers use the same ones."""

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    ExternalStorage,
    PayloadCodec,
    SerializationContext,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.worker import Worker

from orga import Agent, OrgaPlugin, runs, start_agent, tool
from orga.client.config.sections import ModelsConfig, OrgaConfig
from orga.client.journal import timeline_fold
from orga.client.journal.timeline_reader import Timelines
from orga.client.journal.timeline_records import IterationRecord, texts_of
from orga.client.proof.verify import verify
from orga.client.runs.agents import AgentHandle
from orga.errors import RunFailed, UnreadableRun
from orga.testing import assert_called, journal_of, replay
from tests.support.hold import wait_until
from tests.support.model.chat_server import Calls, ChatServer, Says, chat_server


@dataclass(frozen=True)
class Keyed(PayloadCodec, WithSerializationContext):
    """A codec with a key for each workflow and activity. One key cannot open values of another."""

    key: str = "none"

    def with_context(self, context: SerializationContext) -> "Keyed":
        match context:
            case WorkflowSerializationContext():
                return Keyed(f"{context.namespace}/{context.workflow_id}")
            case ActivitySerializationContext():
                place = (context.activity_type, context.is_local)
                return Keyed(f"{context.namespace}/{context.workflow_id}/{context.workflow_type}/{place}")
            case _:
                return self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        closed = {"encoding": b"binary/closed", "key": self.key.encode()}
        return [Payload(metadata=closed, data=each.SerializeToString()[::-1]) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        others = {key for each in payloads if (key := each.metadata["key"].decode()) != self.key}
        assert not others, f"{self.key} does not open {others}"
        return [Payload.FromString(each.data[::-1]) for each in payloads]


class Locked(PayloadCodec):
    """A codec that opens nothing."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [*payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        raise PermissionError("no key")


@dataclass
class Shelf(StorageDriver):
    """Stores values of any size outside of the history."""

    held: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def name(self) -> str:
        return "shelf"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        claims = [StorageDriverClaim({"id": str(uuid.uuid4())}) for _ in payloads]
        self.held |= {c.claim_data["id"]: p.SerializeToString() for c, p in zip(claims, payloads, strict=True)}
        return claims

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [Payload.FromString(self.held[claim.claim_data["id"]]) for claim in claims]


@tool(effect="read_only")
def weigh(parcel: str) -> str:
    """Weigh a parcel.

    Args:
        parcel: Its number.
    """
    raise ValueError(f"{parcel} is not on the scales")


CLERK = Agent("clerk", tools=[weigh, "ask_user"])


@pytest.fixture
def chat() -> Generator[ChatServer]:
    weighs, asks = Calls("weigh", {"parcel": "P-7"}), Calls("ask_user", {"question": "Which parcel?"})
    with chat_server(weighs, asks, Says(["P-8, then"])) as chat:
        yield chat


def with_everything() -> DataConverter:
    return replace(
        DataConverter.default,
        payload_codec=Keyed(),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
        external_storage=ExternalStorage(drivers=[Shelf()], payload_size_threshold=0),
    )


CONVERTERS = [
    pytest.param(replace(DataConverter.default, payload_codec=Keyed()), id="a key for each workflow"),
    pytest.param(
        replace(DataConverter.default, external_storage=ExternalStorage(drivers=[Shelf()], payload_size_threshold=0)),
        id="an external storage",
    ),
    pytest.param(with_everything(), id="both, and encoded failures"),
]


@asynccontextmanager
async def at_work(server: Client, chat: ChatServer, converter: DataConverter, queue: str) -> AsyncGenerator[Client]:
    """Run a new worker of the application, without any cache of the one before."""
    models = ModelsConfig(default="openai-compatible:test", base_urls={"openai-compatible": chat.url})
    plugin = OrgaPlugin(config=OrgaConfig(models=models), agents=[CLERK])
    address = server.service_client.config.target_host
    client = await Client.connect(address, plugins=[plugin], data_converter=converter)
    async with Worker(client, task_queue=queue):
        yield client


async def answer_with_a_new_worker(server: Client, chat: ChatServer, converter: DataConverter) -> AgentHandle:
    """Return a run whose first worker is gone before the question is answered."""
    queue = f"app-{uuid.uuid4()}"
    async with at_work(server, chat, converter, queue) as client:
        asked = await start_agent(client, {"task": "weigh P-7", "agent": "clerk"}, task_queue=queue)

        async def is_asked() -> bool:
            return bool((await asked.status()).question)

        await wait_until(is_asked)
    async with at_work(server, chat, converter, queue) as client:
        handle = AgentHandle(client, asked.id)
        await handle.answer("P-8")
        assert (await handle.result()).output == "P-8, then"
        return handle


@pytest.mark.parametrize("converter", CONVERTERS)
async def test_a_worker_without_a_cache_reads_the_history_as_the_sdk_does(
    client: Client,
    chat: ChatServer,
    converter: DataConverter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = await answer_with_a_new_worker(client, chat, converter)
    journal = await journal_of(handle)
    assert_called(journal, "weigh", arguments={"parcel": "P-7"})
    [failed] = [o for entry in journal for o in entry.data.get("outcomes", ()) if o.get("outcome") == "failed"]
    assert "P-7 is not on the scales" in failed["error"]
    assert (await verify(handle.client, handle.id)).ok
    assert await replay(handle) == 1
    monkeypatch.setenv("ORGA_HOME", str(tmp_path))
    monkeypatch.setattr(timeline_fold, "HEAD_CHARS", 3)
    timelines = Timelines(handle.client)
    page = await timelines.page(handle.id)
    texts = [await timelines.text(handle.id, reference) for reference in references(page.items)]
    assert {'{"parcel":"P-7"}', '{"question":"Which parcel?"}', "P-8, then"} <= set(texts)
    assert not list(tmp_path.iterdir())


def references(records: Sequence[IterationRecord]) -> Iterator[str]:
    return (text.reference for record in records for text in texts_of(record) if text.reference)


async def test_a_history_in_a_file_is_read_with_the_given_converter(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    converter = with_everything()
    handle = await answer_with_a_new_worker(client, chat, converter)
    history = await handle.client.get_workflow_handle(handle.id).fetch_history()
    file = tmp_path / "weighed.json"
    file.write_text(history.to_json())
    assert await replay(file, data_converter=converter) == 1
    assert await journal_of(file, data_converter=converter) == await journal_of(handle)
    for lacking in (DataConverter.default, replace(DataConverter.default, payload_codec=Keyed())):
        with pytest.raises(UnreadableRun, match=r"weighed\.json: .*pass data_converter="):
            await replay(file, data_converter=lacking)


async def test_a_client_without_the_codec_lists_all_runs_and_learns_why_it_reads_none(
    client: Client, chat: ChatServer, tmp_path: Path
) -> None:
    handle = await answer_with_a_new_worker(client, chat, replace(DataConverter.default, payload_codec=Keyed()))
    lacking = await Client.connect(client.service_client.config.target_host, plugins=[OrgaPlugin(config=OrgaConfig())])
    [listed] = [run for run in await runs.list(lacking) if run.id == handle.id]
    assert (listed.state, listed.task) == ("completed", "")
    unread = AgentHandle(lacking, handle.id)
    history = await lacking.get_workflow_handle(handle.id).fetch_history()
    file = tmp_path / "weighed.json"
    file.write_text(history.to_json())

    async def events() -> None:
        async for _ in unread.events():
            pass

    readers: list[Callable[[], Awaitable[object]]] = [
        unread.result,
        events,
        partial(journal_of, unread),
        partial(runs.timeline, lacking, handle.id),
        partial(verify, lacking, handle.id),
        partial(replay, unread),
        partial(replay, file),
    ]
    for read in readers:
        with pytest.raises(UnreadableRun, match="payload codec"):
            await read()


async def test_a_live_run_is_not_read_without_its_codec(client: Client, chat: ChatServer) -> None:
    queue = f"app-{uuid.uuid4()}"
    lacking = await Client.connect(client.service_client.config.target_host, plugins=[OrgaPlugin(config=OrgaConfig())])
    async with at_work(client, chat, replace(DataConverter.default, payload_codec=Keyed()), queue) as application:
        run = await start_agent(application, {"task": "weigh P-7", "agent": "clerk"}, task_queue=queue)
        unread = AgentHandle(lacking, run.id)
        with pytest.raises(UnreadableRun, match="payload codec"):
            await unread.status()
        locked = await Client.connect(
            client.service_client.config.target_host,
            plugins=[OrgaPlugin(config=OrgaConfig())],
            data_converter=replace(DataConverter.default, payload_codec=Locked()),
        )
        assert ("running", "") in {(each.state, each.task) for each in await runs.list(locked) if each.id == run.id}
        await run.abort()


async def test_a_worker_without_the_codec_names_it(client: Client, chat: ChatServer) -> None:
    queue = f"app-{uuid.uuid4()}"
    converter = replace(DataConverter.default, payload_codec=Keyed())
    address = client.service_client.config.target_host
    encoding = await Client.connect(address, plugins=[OrgaPlugin(config=OrgaConfig())], data_converter=converter)
    async with at_work(client, chat, DataConverter.default, queue):
        run = await start_agent(encoding, "weigh P-7", task_queue=queue)
        with pytest.raises(RunFailed, match="give the worker the payload codec of whoever starts runs"):
            await run.result()
