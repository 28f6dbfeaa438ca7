"""Parts of one's own: a model, a policy, a critic, a summarizer and two stores, each an object."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from orga.ports import (
    ApprovalTerms,
    BlobStore,
    Erasure,
    GateRequest,
    KnowledgeItem,
    KnowledgeKind,
    KnowledgeStore,
    Message,
    ModelRequest,
    Recall,
    Recalled,
    Reply,
    Review,
    ReviewedWork,
    Stored,
    StoredItem,
    StoreFacts,
    ToolCall,
    Usage,
    Verdict,
    is_erased_by,
    is_visible,
    item_id,
    require_named,
)


class HouseModel:
    """A model. This one looks the last word of the task up, and repeats what it has found."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        results = [message.text for message in request.messages if message.role == "tool"]
        if request.tools and not results:
            word = request.messages[0].text.split()[-1].strip(".,?")
            call = ToolCall(call_id="look", name=request.tools[0].name, arguments={"word": word.lower()})
            return Reply.of("", [call], finish="tool_calls", usage=Usage(input_tokens=40, output_tokens=12))
        # the first and the last line of a result mark it as data
        text = "\n".join(results[-1].splitlines()[1:-1]) or results[-1] if results else "I have no tool."
        on_text(text)
        return Reply.of(text, usage=Usage(input_tokens=60, output_tokens=20))


class OfficeHours:
    """A policy. Reading is free, everything else needs a person, and nothing is done for the tenant `closed`."""

    is_embedded = True
    """It decides in this process, without a server."""
    version = "1"
    """An approval counts only for the version that asked for it."""

    async def judge(self, proposal: GateRequest) -> Verdict:
        if proposal.tenant == "closed":
            return Verdict(decision="deny", reason="this tenant is closed", version=self.version)
        spec = proposal.spec(proposal.call.name) if proposal.call else None
        if proposal.call is None or (spec and spec.effect == "read_only"):
            return Verdict(decision="allow", version=self.version)
        reason = f"{proposal.call.name} changes something"
        return Verdict(decision="approval", reason=reason, approval=ApprovalTerms(), version=self.version)


class LengthCritic:
    """A critic. An answer of more than 200 characters fails."""

    async def review(self, work: ReviewedWork) -> Review:
        is_short = len(work.subject) <= 200
        return Review({"length": 1.0 if is_short else 0.0}, "" if is_short else "Answer in at most 200 characters.")


class FirstLines:
    """A summarizer. It keeps the first line of each message that leaves the context."""

    async def summarise(self, task: str, messages: Sequence[Message], max_bytes: int) -> str:
        lines = [f"{each.role}: {each.text.strip().splitlines()[0][:80]}" for each in messages if each.text.strip()]
        return "\n".join(lines)[: max_bytes // 4]


class MemoryStore(KnowledgeStore):
    """A knowledge store in memory. It finds items that share a word with the query."""

    def __init__(self) -> None:
        self._items: dict[str, StoredItem] = {}

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        found = [Stored(id=key, change="updated" if key in self._items else "added") for key in map(item_id, items)]
        for item in items:
            self._items[item_id(item)] = StoredItem(**item.model_dump(), id=item_id(item), stored_at=datetime.now(UTC))
        return found

    async def recall(self, query: Recall) -> list[Recalled]:
        words, now = set(query.text.lower().split()), datetime.now(UTC)
        seen = [each for each in self._items.values() if each.kind in query.kinds and is_visible(each, query)]
        current = [each for each in seen if each.expires_at is None or each.expires_at > now]
        scored = [(len(words & set(each.text.lower().split())) / max(len(words), 1), each) for each in current]
        best = sorted((pair for pair in scored if pair[0] > 0 or not words), key=lambda pair: -pair[0])
        return [Recalled(item=item, score=score) for score, item in best[: query.limit]]

    async def get(self, item_id: str) -> StoredItem | None:
        return self._items.get(item_id)

    async def items(self, *, kinds: Sequence[str] = (), source_prefix: str = "") -> AsyncIterator[StoredItem]:
        for _, item in sorted(self._items.items()):
            if (not kinds or item.kind in kinds) and item.provenance.source.startswith(source_prefix):
                yield item

    async def forget(self, what: Erasure) -> dict[KnowledgeKind, int]:
        require_named(what)
        gone = [self._items.pop(each.id) for each in [*self._items.values()] if is_erased_by(each, what)]
        return Counter(each.kind for each in gone)

    async def facts(self) -> StoreFacts:
        counts: dict[KnowledgeKind, int] = Counter(each.kind for each in self._items.values())
        return StoreFacts("memory", "this process", 1, "words", counts, 0, 0, 0, 0, 0)


class MemoryBlobs(BlobStore):
    """A store of pictures and documents in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def put(self, data: bytes, media_type: str) -> str:
        digest = f"sha256:{sha256(data).hexdigest()}"
        self._kept[digest] = data
        return digest

    async def get(self, digest: str) -> bytes | None:
        return self._kept.get(digest)
