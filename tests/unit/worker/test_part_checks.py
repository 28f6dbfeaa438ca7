"""Parts that an application gives as objects: what is refused, and that the checks for them find what is wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from examples.parts.parts import FirstLines, HouseModel, LengthCritic, MemoryBlobs, MemoryStore, OfficeHours
from orga import OrgaPlugin
from orga.client.config.sections import OrgaConfig, PolicyConfig
from orga.client.errors import ConfigError
from orga.ports import (
    Critic,
    Dimension,
    Erasure,
    GateRequest,
    KnowledgeItem,
    KnowledgeKind,
    Message,
    ModelRequest,
    Recall,
    Recalled,
    Reply,
    Review,
    ReviewedWork,
    Stored,
    ToolCall,
    Verdict,
)
from orga.testing import (
    check_blob_store,
    check_critic,
    check_knowledge_store,
    check_model,
    check_policy,
    check_summarizer,
)

SHORT = Critic(name="short", model="code:length", rubric={"length": Dimension(weight=1.0)})


async def test_the_parts_of_the_example_pass_their_checks() -> None:
    await check_model(HouseModel())
    await check_policy(OfficeHours())
    await check_critic(LengthCritic(), SHORT)
    await check_summarizer(FirstLines())
    await check_knowledge_store(MemoryStore())
    await check_blob_store(MemoryBlobs())


class NoReply:
    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        return cast("Reply", "a text")


class OtherStream:
    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        on_text("one thing")
        return Reply.of("another")


class InventsTools:
    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        return Reply.of("", [ToolCall(call_id="c", name="format_disk", arguments={})])


class IgnoresCancellation:
    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        if request.system:
            return Reply.of("done")
        work = asyncio.ensure_future(asyncio.sleep(1.5))
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(work)
        return Reply.of("late")


class TwoMinds(OfficeHours):
    def __init__(self) -> None:
        self.asked = 0

    async def judge(self, proposal: GateRequest) -> Verdict:
        self.asked += 1
        return Verdict(decision="allow" if self.asked % 2 else "deny")


class NeverEnough(OfficeHours):
    async def judge(self, proposal: GateRequest) -> Verdict:
        return Verdict(decision="deny" if proposal.approved_by else "approval")


class Unrecordable(OfficeHours):
    async def judge(self, proposal: GateRequest) -> Verdict:
        return Verdict(decision="allow", arguments={"word": float("nan")})


class OtherDimension:
    async def review(self, work: ReviewedWork) -> Review:
        return Review({"width": 1.0})


class OverTheTop:
    async def review(self, work: ReviewedWork) -> Review:
        return Review({"length": 10})


class NoText:
    async def summarise(self, task: str, messages: Sequence[Message], max_bytes: int) -> str:
        return cast("str", [task])


class ShowsAll(MemoryStore):
    async def recall(self, query: Recall) -> list[Recalled]:
        return [Recalled(item=each, score=1) async for each in self.items()]


class KeepsBoth(MemoryStore):
    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        return await super().store([item.model_copy(update={"key": item.text}) for item in items])


class ForgetsAll(MemoryStore):
    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        return await super().forget(Erasure(tenant="acme") if what == Erasure() else what)


class OwnNames(MemoryBlobs):
    async def put(self, data: bytes, media_type: str) -> str:
        return (await super().put(data, media_type)).removeprefix("sha256:")


class OnlySmall(MemoryBlobs):
    async def put(self, data: bytes, media_type: str) -> str:
        digest = await super().put(data, media_type)
        self._kept[digest] = data[:1_000_000]
        return digest


class NeverMissing(MemoryBlobs):
    async def get(self, digest: str) -> bytes | None:
        return await super().get(digest) or b""


FAULTS: dict[str, tuple[Callable[[], Awaitable[None]], str]] = {
    "a model that returns a text": (lambda: check_model(NoReply()), "complete: is str, not Reply"),
    "a model that streams another text": (lambda: check_model(OtherStream()), "another text than the reply"),
    "a model that calls what does not exist": (lambda: check_model(InventsTools()), "called format_disk"),
    "a model that cannot be cancelled": (lambda: check_model(IgnoresCancellation()), "after it was cancelled"),
    "a policy that changes its mind": (lambda: check_policy(TwoMinds()), "in two ways"),
    "a policy that no approval satisfies": (lambda: check_policy(NeverEnough()), "a person had approved"),
    "a policy whose verdict is no JSON": (lambda: check_policy(Unrecordable()), "cannot be recorded"),
    "a critic of another rubric": (lambda: check_critic(OtherDimension(), SHORT), "scored ['width']"),
    "a critic with a score of 10": (lambda: check_critic(OverTheTop(), SHORT), "not from 0 to 1"),
    "a summarizer without a text": (lambda: check_summarizer(NoText()), "summarise: is list, not str"),
    "a store that shows what others own": (lambda: check_knowledge_store(ShowsAll()), "somebody else's"),
    "a store that replaces nothing": (lambda: check_knowledge_store(KeepsBoth()), "is not replaced"),
    "a store that forgets what is not named": (lambda: check_knowledge_store(ForgetsAll()), "nothing is named"),
    "blobs under names of their own": (lambda: check_blob_store(OwnNames()), "must return sha256:"),
    "blobs that are cut": (lambda: check_blob_store(OnlySmall()), "get: 20,000,000 bytes are not as they were"),
    "blobs that are never missing": (lambda: check_blob_store(NeverMissing()), "must return None for a digest"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_checks_find(fault: str) -> None:
    check, expected = FAULTS[fault]
    with pytest.raises(AssertionError) as caught:
        await check()
    assert expected in str(caught.value)


class Blocking:
    def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        return Reply.of("done")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a model that blocks": ({"models": {"house": Blocking()}}, "models['house']: Blocking has no `async def complete`"),
    "a name that no model name can have": ({"models": {"My House": HouseModel()}}, "models: 'My House' must be"),
    "a critic with the name of a model": (
        {"models": {"a": HouseModel()}, "critics": {"a": LengthCritic()}},
        "critics: 'a' is a model, too",
    ),
    "the class of a model": (
        {"models": {"house": HouseModel}},
        "models['house']: HouseModel is a class; give an object",
    ),
    "a critic that cannot review": ({"critics": {"a": HouseModel()}}, "critics['a']: HouseModel has no `async def rev"),
    "a policy that cannot judge": ({"policy": HouseModel()}, "policy: HouseModel has no `async def judge`"),
    "a store that cannot recall": ({"knowledge": HouseModel()}, "knowledge: HouseModel has no `async def recall`"),
    "a summarizer that cannot": ({"summarizer": HouseModel()}, "summarizer: HouseModel has no `async def summarise`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_at_once(case: str, tmp_path: Path) -> None:
    given, expected = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        OrgaPlugin(config=OrgaConfig(), root=tmp_path, **given)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("configured", [PolicyConfig(engine="allow"), PolicyConfig(dir=Path("policies"))], ids=str)
def test_an_object_replaces_no_configured_policy(configured: PolicyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="policy: an object is given in code, and the configuration has a policy"):
        OrgaPlugin(config=OrgaConfig(policy=configured), root=tmp_path, policy=OfficeHours())
