// assistant-ui without a browser: it talks with an agent over AG-UI, and prints the last message after each step.
// Arguments: the folder of the packages, the address of an agent, a token, then `say:TEXT`, `see:URL` of a picture,
// `resume:JSON`, `leave:TEXT`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, url, token, ...steps] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)));

const { JSDOM } = await load("jsdom");
const { window } = new JSDOM("<div id=root></div>", { url: "http://localhost/" });
Object.assign(globalThis, { window, document: window.document });
Object.defineProperty(globalThis, "navigator", { value: window.navigator, configurable: true });
const { default: React } = await load("react");
const { createRoot } = await load("react-dom/client");
const { AssistantRuntimeProvider } = await load("@assistant-ui/react");
const agui = await load("@assistant-ui/react-ag-ui");
const { HttpAgent } = await load("@ag-ui/client");

const headers = { Authorization: `Bearer ${token}` };
const agent = new HttpAgent({ url, threadId: crypto.randomUUID(), headers });
const here = {};

function Inside() {
  here.interrupts = agui.useAgUiInterrupts();
  here.submit = agui.useAgUiSubmitInterruptResponses();
  here.leave = agui.useAgUiSteerAway();
  return null;
}

function App() {
  here.runtime = agui.useAgUiRuntime({ agent, showThinking: true, onError: (error) => console.error(error) });
  const inside = React.createElement(Inside);
  return React.createElement(AssistantRuntimeProvider, { runtime: here.runtime }, inside);
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
createRoot(document.getElementById("root")).render(React.createElement(App));
while (!here.submit) await pause();

for (const step of steps) {
  const [kind, given] = [step.slice(0, step.indexOf(":")), step.slice(step.indexOf(":") + 1)];
  const before = here.runtime.thread.getState().messages.length;
  if (kind === "say") here.runtime.thread.append({ role: "user", content: [{ type: "text", text: given }] });
  if (kind === "see") {
    const image = { type: "image", image: given, filename: "lamp.png" };
    here.runtime.thread.append({ role: "user", content: [{ type: "text", text: "What is it?" }, image] });
  }
  if (kind === "leave") await here.leave(given);
  if (kind === "resume") {
    const payload = JSON.parse(given);
    await here.submit(here.interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload })));
  }
  const isUnderWay = () => {
    const { messages, isRunning } = here.runtime.thread.getState();
    return isRunning || (kind !== "resume" && messages.length < before + 2);
  };
  while (isUnderWay()) await pause();
  await pause();
  const { messages } = here.runtime.thread.getState();
  const { status, content } = messages.at(-1);
  console.log(JSON.stringify({ status, content, interrupts: here.interrupts.map(({ id }) => id), count: messages.length }));
}
process.exit(0);
