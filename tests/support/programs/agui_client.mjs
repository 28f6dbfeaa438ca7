// A client of AG-UI by its makers' package: each line of standard input is a request, each line of output what came.
// {"say": "hi"}, {"resume": {...payload}}, {"cancel": true}, {"lose": "TEXT_MESSAGE_CONTENT"}
// `lose` ends the connection at this event: by the client, or with `kill` by the end of the server's process.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, threadId, token] = process.argv.slice(2);
const entry = createRequire(`${folder}/package.json`).resolve("@ag-ui/client");
const { HttpAgent } = await import(pathToFileURL(entry));
const agent = new HttpAgent({ url, threadId, headers: { Authorization: `Bearer ${token}` } });
let said = 0;
process.on("unhandledRejection", () => {}); // the package leaves one if the connection is lost, and a page goes on

for await (const line of createInterface({ input: process.stdin })) {
  const { say, resume, cancel, lose, kill, run, interrupts, forwarded } = JSON.parse(line);
  if (say !== undefined) agent.addMessage({ id: `user-${++said}`, role: "user", content: say });
  const given = { ...(run && { runId: run }), ...(forwarded && { forwardedProps: forwarded }) };
  const decided = cancel ? { status: "cancelled" } : { status: "resolved", payload: resume };
  const ids = interrupts ?? agent.pendingInterrupts.map((each) => each.id);
  if (resume || cancel) given.resume = ids.map((interruptId) => ({ interruptId, ...decided }));
  const events = [];
  const onEvent = ({ event }) => {
    events.push(event);
    if (event.type === lose) kill ? process.kill(kill, "SIGKILL") : agent.abortRun();
  };
  const done = await agent.runAgent(given, { onEvent }).catch((error) => ({ error: String(error) }));
  const { result, error } = done;
  const { messages, pendingInterrupts: pending, state } = agent;
  console.log(JSON.stringify({ events, result, error, messages, state, interrupts: pending }));
}
