// @ts-check
/**
 * The events of the server, one connection for all tabs of a browser.
 *
 *     const end = subscribe(["runs", "run:ID"])       adds topics while this page needs them
 *     onEvent("state", (data, id) => …)               events of all topics that any tab needs: look at data.run
 *     onEvent("resync", ({topics}) => …)              read the snapshot of these topics again
 *     connection      signal {state: "connecting" | "live" | "lost", since: ms, why: the reason of the server}
 *
 * The tabs elect a leader by a lock. The leader has the one connection, for the topics of all tabs, and passes each
 * event on by a channel. All tabs remember the id of the last event. When the leader closes, the next tab gets the lock
 * and goes on from that id. Each tab also holds a lock of its own, so the leader sees which tabs are gone.
 */
import { cleanup, signal } from "./ui.js";

const TAB = `orga-tab-${crypto.randomUUID()}`;
const LEADER = "orga-stream";
/** Milliseconds. The server sends a ping every 15 s. */
const SILENCE = 40_000;
/** Topics of one stream. The server refuses more. */
const MOST_TOPICS = 100;

/** @typedef {{state: "connecting"|"live"|"lost", since: number, why: string}} Connection */

/** @type {import("./ui.js").Signal<Connection>} */
export const connection = signal({ state: "connecting", since: Date.now(), why: "" });

/** @type {Map<string, Set<(data: any, id: string) => void>>} */
const handlers = new Map();
/** By topic: the number of times that this tab needs it. @type {Map<string, number>} */
const needed = new Map();
/** The topics of each tab, kept by the leader. @type {Map<string, string[]>} */
const tabs = new Map();
const channel = new BroadcastChannel("orga-stream");
let lastId = "";
let lastHeard = Date.now();
let leads = false;
/** @type {string[]} */ let streamed = [];
/** @type {AbortController|null} */ let request = null;
/** @type {number|undefined} */ let planned;
let failures = 0;

/** True in one tab of the browser. Only this tab notifies people. */
export const isLeader = () => leads;

/** @param {string} event @param {(data: any, id: string) => void} handler */
export function onEvent(event, handler) {
  const known = handlers.get(event) ?? new Set();
  handlers.set(event, known.add(handler));
  const end = () => void known.delete(handler);
  cleanup(end);
  return end;
}

/** @param {string[]} topics @returns {() => void} */
export function subscribe(topics) {
  for (const topic of topics) needed.set(topic, (needed.get(topic) ?? 0) + 1);
  announce();
  let ended = false;
  const end = () => {
    if (ended) return;
    ended = true;
    for (const topic of topics) {
      const left = (needed.get(topic) ?? 1) - 1;
      if (left) needed.set(topic, left);
      else needed.delete(topic);
    }
    announce();
  };
  cleanup(end);
  return end;
}

function announce() {
  const topics = [...needed.keys()];
  if (leads) {
    tabs.set(TAB, topics);
    plan();
  } else channel.postMessage({ tab: TAB, topics });
}

/** @param {string} event @param {any} data @param {string} id */
function deliver(event, data, id) {
  lastHeard = Date.now();
  if (id) lastId = id;
  for (const handler of [...(handlers.get(event) ?? [])]) {
    try {
      handler(data, id);
    } catch (error) {
      console.error(error);
    }
  }
}

/** @param {Connection["state"]} state @param {number} [since] @param {string} [why] */
function report(state, since = Date.now(), why = "") {
  const now = connection.peek();
  if (now.state !== state || now.why !== why)
    connection.value = { state, since: now.state === state ? now.since : since, why };
  if (leads) channel.postMessage({ connection: connection.peek() });
}

channel.onmessage = (/** @type {MessageEvent} */ { data: message }) => {
  if (message.tab && leads) {
    const isNew = !tabs.has(message.tab);
    if (message.topics) tabs.set(message.tab, message.topics);
    else tabs.delete(message.tab);
    if (isNew) channel.postMessage({ connection: connection.peek(), lastId });
    plan();
  } else if (message.leader) announce();
  else if (message.connection && !leads) {
    lastHeard = Date.now();
    if (!lastId && message.lastId) lastId = message.lastId;
    report(message.connection.state, message.connection.since, message.connection.why);
  } else if (message.event && !leads) deliver(message.event, message.data, message.id);
};

/** The topics that some tab needs, at most those of one connection. `runs` and `inbox` come before single runs. */
function union() {
  const topics = [...new Set([...tabs.values()].flat())].sort();
  return topics.sort((one, other) => Number(one.includes(":")) - Number(other.includes(":"))).slice(0, MOST_TOPICS);
}

/** Connect again soon if a topic is missing. Topics that no tab needs are dropped with the next connection. */
function plan(delay = 40) {
  if (request && union().every((topic) => streamed.includes(topic))) return;
  clearTimeout(planned);
  planned = setTimeout(() => void connect(union()), delay);
}

/** @param {string[]} topics */
async function connect(topics) {
  request?.abort();
  if (!topics.length) return;
  const own = new AbortController();
  request = own;
  streamed = topics;
  let silence = setTimeout(() => own.abort(), SILENCE);
  let why = "";
  try {
    const response = await fetch(`/api/v1/events?topics=${topics.map(encodeURIComponent).join(",")}`, {
      headers: { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) },
      signal: own.signal,
    });
    if (!response.ok || !response.body) {
      why = (await response.json()).detail;
      throw new Error(why);
    }
    failures = 0;
    report("live");
    await read(response.body, (event, data, id) => {
      clearTimeout(silence);
      silence = setTimeout(() => own.abort(), SILENCE);
      channel.postMessage({ event, data, id });
      deliver(event, data, id);
    });
  } catch {
    // the code below handles every end of the connection
  }
  clearTimeout(silence);
  if (request !== own) return; // another connection has begun
  request = null;
  report("lost", Date.now(), why);
  failures++;
  plan(Math.min(2000, 250 * 2 ** Math.min(failures, 3)) * (0.75 + Math.random() / 2));
}

/** @param {ReadableStream<Uint8Array>} body @param {(event: string, data: any, id: string) => void} take */
async function read(body, take) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "";
  let event = "";
  let id = "";
  /** @type {string[]} */ let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, field, text = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (field === "event") event = text;
      else if (field === "id") id = text;
      else if (field === "data") data.push(text);
      else if (!line) {
        if (data.length) take(event || "message", JSON.parse(data.join("\n")), id);
        event = "";
        data = [];
      }
    }
  }
}

/** Forget the tabs that have closed without a message. */
async function prune() {
  const { held = [] } = await navigator.locks.query();
  const alive = new Set(held.map((lock) => lock.name));
  for (const tab of tabs.keys()) if (!alive.has(tab)) tabs.delete(tab);
}

void navigator.locks.request(TAB, () => new Promise(() => {}));
void navigator.locks.request(LEADER, () => {
  leads = true;
  channel.postMessage({ leader: TAB });
  setInterval(() => void prune(), 30_000);
  announce();
  return new Promise(() => {});
});
addEventListener("pagehide", () => channel.postMessage({ tab: TAB }));
addEventListener("online", () => leads && !request && plan(0));
document.addEventListener("visibilitychange", () => leads && !request && !document.hidden && plan(0));
setInterval(() => leads || Date.now() - lastHeard < SILENCE || report("lost", lastHeard), 5000);
