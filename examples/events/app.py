"""Shows runs in a browser while they go on: their events as Server-Sent Events, and a page that reads them.

`python app.py`, then open the page of a run: http://127.0.0.1:8008/runs/ID
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import escape
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Header, Response
from fastapi.middleware import Middleware
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

import orga
from orga.errors import InvalidInput, OrgaError, RunNotFound

PAGE = """<!doctype html><meta charset="utf-8"><title>{run}</title>
<pre id="journal"></pre><pre id="live"></pre>
<script>
  const journal = [], live = {{}};
  const source = new EventSource(location.pathname + "/events");
  const show = (id, lines) => document.getElementById(id).textContent = lines.join("\\n");
  source.addEventListener("entry", ({{data}}) => {{
    const entry = JSON.parse(data);
    journal.length = entry.sequence;  // a run that was rewound goes on from here
    journal.push(`${{entry.sequence}} ${{entry.event}} ${{JSON.stringify(entry.data).slice(0, 200)}}`);
    show("journal", journal);
  }});
  source.addEventListener("live", ({{data}}) => {{
    const {{run, activity_id, name, text, is_over}} = JSON.parse(data);
    if (is_over) delete live[run + activity_id]; else live[run + activity_id] = `${{name}} ${{text}}`;
    show("live", Object.values(live));
  }});
  source.addEventListener("end", () => source.close());
</script>
"""


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncGenerator[None]:
    """Keep one client for all requests: readers of the same run share what it reads."""
    async with orga.connect() as client:
        app.state.client = client
        yield


OUR_HOSTS = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])

app = FastAPI(lifespan=connected, middleware=[OUR_HOSTS])


@app.get("/runs/{run}")
async def page(run: str) -> HTMLResponse:
    """Return the page of a run."""
    return HTMLResponse(PAGE.format(run=escape(run)))


@app.get("/runs/{run}/events")
async def events(run: str, last_event_id: Annotated[str | None, Header()] = None) -> Response:
    """Stream the events of a run. A browser that reconnects names the last entry that it received in a header."""
    handle = orga.AgentHandle(app.state.client, run)
    try:
        await handle.describe()
    except RunNotFound as error:
        return PlainTextResponse(str(error), status_code=404)
    return EventSourceResponse(stream(handle, last_event_id))


async def stream(run: orga.AgentHandle, after: str | None) -> AsyncGenerator[ServerSentEvent]:
    """Yield what a browser is sent, until the run ends."""
    try:
        async for event in run.events(after=after):
            if isinstance(event, orga.JournalEntry):
                yield ServerSentEvent(event.model_dump_json(), event="entry", id=event.cursor)
            else:
                yield ServerSentEvent(event.model_dump_json(), event="live")
    except (OrgaError, InvalidInput) as error:
        yield ServerSentEvent(str(error), event="end")
    else:
        yield ServerSentEvent("the run has ended", event="end")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=8008)
