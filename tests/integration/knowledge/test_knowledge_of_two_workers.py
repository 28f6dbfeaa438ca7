"""Two worker processes on one file: fifty concurrent runs store shared facts once, and each its own fact."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.client.journal.reading import read_journal
from orga.testing import FakeTool
from tests.support.crash.stage import NEVER
from tests.support.crash.worker import Backstage, CrashWorker, Fate

RUNS = 50
PATIENCE = timedelta(seconds=200)
SHARED = {"harbour": "north", "crane": "yellow"}


def no_tools(backstage: Backstage) -> list[FakeTool]:
    """Return no tools except those of knowledge."""
    del backstage
    return []


@dataclass(frozen=True)
class Traces:
    """Traces of one run."""

    workers: set[str]
    """Identities of the workers that executed its activities."""
    failures: list[str]
    """Messages of activities that were retried, and errors of local activities from the journal."""
    stored: list[dict[str, Any]]


async def play(client: Client, queue: str, number: int) -> Traces:
    facts = [*SHARED.items(), (f"lorry{number}", "here")]
    facts = facts[number % 3 :] + facts[: number % 3]
    handle: WorkflowHandle[Any, Any] = await client.start_workflow(
        "AgentWorkflow",
        {"task": " ".join(f"fact:{subject}+{object_}" for subject, object_ in facts), "config": {"knowledge": {}}},
        id=f"{queue}-{number}",
        task_queue=queue,
        execution_timeout=PATIENCE,
    )
    result = await handle.result()
    assert result["termination"]["reason"] == "completed"
    history = await handle.fetch_history()
    begun = [event.activity_task_started_event_attributes for event in history.events]
    reported = [(entry.event, entry.data) async for entry in read_journal(client, handle.id)]
    failures = [each.last_failure.message for each in begun if each.last_failure.message]
    return Traces(
        {each.identity for each in begun if each.identity},
        [*failures, *(data["error"] for _, data in reported if "error" in data)],
        [data for event, data in reported if event == "KnowledgeStored"],
    )


async def test_fifty_runs_of_two_workers_store_the_same_facts_once(client: Client, tmp_path: Path) -> None:
    """No fact is lost or stored twice, and no run sees a lock of the file."""
    queue, address = f"two-{uuid4()}", client.service_client.config.target_host
    known = CrashWorker(address, queue, tmp_path / "effects", NEVER, Fate(), no_tools, remembers=True)
    workers = [known.started() for _ in range(2)]
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            runs = await asyncio.gather(*(play(client, queue, number) for number in range(RUNS)))
    finally:
        for worker in workers:
            worker.kill()

    store = SqliteStore(tmp_path / "knowledge.db", HashingEmbedder())
    kept = [item async for item in store.items()]
    await store.close()
    facts = Counter((item.subject, item.object) for item in kept if item.kind == "fact")
    assert facts == Counter([*SHARED.items(), *((f"lorry{number}", "here") for number in range(RUNS))])
    runs_that_learnt = Counter(item.provenance.workflow_id for item in kept if item.kind == "memory")
    assert runs_that_learnt == Counter(f"{queue}-{number}" for number in range(RUNS))

    changes = Counter(each.get("change") for run in runs for each in run.stored)
    assert changes == {"added": len(kept), "unchanged": len(SHARED) * (RUNS - 1)}
    assert len(set[str]().union(*(run.workers for run in runs))) == 2
    errors = [error for run in runs for error in run.failures]
    assert not [error for error in errors if "held by another process" in error or "Busy" in error], errors
