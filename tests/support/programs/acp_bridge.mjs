// A client of the Agent Client Protocol, by the protocol's own SDK, that a test drives line by line.
// Arguments: the SDK's entry, then the agent's command.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdk));
const send = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
agent.on("exit", (code) => send({ exit: code }));

let asks = 0;
const open = new Map();
const ask = (method) => (params) =>
  new Promise((resolve) => {
    open.set(++asks, resolve);
    send({ ask: asks, method, params });
  });
const client = {
  requestPermission: ask("requestPermission"),
  createElicitation: ask("createElicitation"),
  sessionUpdate: async (params) => send({ update: params }),
};
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = new acp.ClientSideConnection(() => client, stream);

send({ pid: agent.pid });
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.ask) open.get(request.ask)(request.result);
  else
    connection[request.method](request.params).then(
      (result) => send({ id: request.id, result: result ?? null }),
      (error) => send({ id: request.id, error: { code: error.code, message: error.message, data: error.data } }),
    );
}
agent.stdin.end();
