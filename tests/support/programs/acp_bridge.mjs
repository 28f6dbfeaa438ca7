// A client of the Agent Client Protocol, by the protocol's own SDK, that a test drives line by line.
// Arguments: the SDK's entry, then the agent's command.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdk));
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
agent.on("exit", (code) => say({ exit: code }));

let asks = 0;
const open = new Map();
const ask = (method) => (params) =>
  new Promise((resolve) => {
    open.set(++asks, resolve);
    say({ ask: asks, method, params });
  });
const client = {
  requestPermission: ask("requestPermission"),
  createElicitation: ask("createElicitation"),
  sessionUpdate: async (params) => say({ update: params }),
};
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = new acp.ClientSideConnection(() => client, stream);

say({ pid: agent.pid });
for await (const line of createInterface({ input: process.stdin })) {
  const told = JSON.parse(line);
  if (told.ask) open.get(told.ask)(told.result);
  else
    connection[told.method](told.params).then(
      (result) => say({ id: told.id, result: result ?? null }),
      (error) => say({ id: told.id, error: { code: error.code, message: error.message, data: error.data } }),
    );
}
agent.stdin.end();
