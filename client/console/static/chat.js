// @ts-check
/** The page of a session: a conversation with an agent, which also shows what waits for a person. */
import { address, pageId, runPath } from "./address.js";
import { asProblem, get, may, post, resource } from "./api.js";
import { capital, words } from "./format.js";
import { bubble, chatRow, goalRow } from "./run/chat_rows.js";
import { newestAct, runControls } from "./run/controls.js";
import { shownValue, troubles } from "./run/head.js";
import { WindowedList } from "./run/list.js";
import { runState } from "./run/state.js";
import { inFlight } from "./run/timeline.js";
import { stateMark } from "./marks.js";
import { announce, setTitle, show } from "./shell.js";
import { computed, each, effect, h, onChange, signal, stable, untracked } from "./ui.js";
import { waitKeys, waitList } from "./waits.js";
import { button, chip, failed, labelled, pageOf, skeleton, submits, suggestions } from "./widgets.js";

const id = pageId();

/** A text that is kept in the browser for this chat. @param {string} key */
const kept = (key) => ({
  get: () => localStorage.getItem(`orga-${key}-${id}`) ?? "",
  set: (/** @type {string} */ text) =>
    text ? localStorage.setItem(`orga-${key}-${id}`, text) : localStorage.removeItem(`orga-${key}-${id}`),
});
const draft = kept("draft");
const queue = kept("queue");
/** The goals that this browser has started and whose answers the session does not have yet. */
const ownGoals = kept("goals");
/** @param {string} goal */
const takeOwn = (goal) => {
  const all = ownGoals.get().split(" ");
  ownGoals.set(all.filter((one) => one !== goal).join(" "));
  return all.includes(goal);
};

/**
 * @param {string} placeholder @param {(text: string) => Promise<void>} send
 * @param {import("./ui.js").Child} [modes]
 */
function composer(placeholder, send, modes) {
  const problem = signal("");
  const isBusy = signal(false);
  const submit = async () => {
    const text = area.value.trim();
    if (!text || isBusy.peek()) return;
    isBusy.value = true;
    problem.value = "";
    try {
      await send(text);
      area.value = "";
      draft.set("");
    } catch (error) {
      problem.value = asProblem(error).detail;
    }
    isBusy.value = false;
    area.focus();
  };
  const onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void submit();
  };
  const oninput = () => draft.set(area.value);
  const label = { placeholder, "aria-label": placeholder };
  const area = h("textarea", { rows: 1, ...label, value: draft.get(), oninput, onkeydown });
  return h("form.composer", submits(submit), modes,
    h("p.error", { role: "alert", hidden: () => !problem.value }, problem),
    h("div.composer-line", area,
      h("button.primary", { type: "submit", "aria-disabled": () => String(isBusy.value) }, "Send")));
}

function newChat() {
  setTitle("New chat");
  const from = address.get("from");
  const agent = h("input", { name: "agent", value: address.get("agent") || "default", list: "agents" });
  const model = h("input", { name: "model", placeholder: "the agent's own" });
  const limit = h("input", { name: "max_iterations", type: "number", min: 1, placeholder: "the agent's own" });
  const agents = resource("/agents").data;
  const send = async (/** @type {string} */ text) => {
    const config = limit.value ? { max_iterations: Number(limit.value) } : {};
    const input = { agent: agent.value || "default", model: model.value || undefined, config };
    const { id: session } = await post("/runs", { kind: "session", input }, { key: `chat-${await digest(text)}` });
    const act = (/** @type {Record<string, unknown>} */ values) =>
      post(`${runPath(session)}/actions`, { id: crypto.randomUUID(), ...values });
    if (from) {
      const { task, detail, ...before } = await get(runPath(from));
      const answer = /** @type {any} */ (before.result)?.output || detail || "none";
      const about = `This conversation goes on from an earlier run (${from}).`;
      await act({ kind: "add_context", text: `${about}\n\nIts task: ${task}\n\nIts answer: ${answer}` });
    }
    await act({ kind: "send", text });
    location.href = `/chat/${encodeURIComponent(session)}`;
  };
  return h("div.chat.is-new", h("header.chat-head", h("h1", from ? "Go on with a run" : "New chat")),
    h("section.chat-start.stack",
      from
        ? h("p", "The agent knows the task and the answer of ", h("a", { href: runPath(from) }, from), ".")
        : h("p.soft", "A chat is a run that goes on. Its messages, calls and decisions stay if this page is closed."),
      h("div.row", labelled("Agent", agent), labelled("Model", model), labelled("Iterations of a turn", limit)),
      suggestions("agents", () => agents.value?.items.map(({ name }) => name) ?? [])),
    composer("Your first message", send));
}

/** The digest of a first message. A message that is sent twice begins only one chat. @param {string} text */
async function digest(text) {
  const bytes = new TextEncoder().encode(`${text} ${sessionStorage.orgaChat ??= crypto.randomUUID()}`);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...hash].slice(0, 12).map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @typedef {{turn: number, text: string, at: string}} Queued A message that was sent and has no turn yet. */
/** @typedef {{id: string, task: string, state: string, started: string}} Goal */

/** The messages, calls and goals of a chat. @param {import("./run/state.js").Run} run @param {() => Goal[]} goals */
function thread(run, goals) {
  const { records } = run;
  const following = signal(true);
  const queued = signal(/** @type {Queued[]} */ (JSON.parse(queue.get() || "[]")));
  effect(() => queue.set(queued.value.length ? JSON.stringify(queued.value) : ""));
  effect(() => {
    void records.version.value;
    const turns = records.loaded().flatMap(({ events }) =>
      events.filter(({ event }) => event === "TurnStarted").map(({ data }) => data.turn));
    untracked(() => (queued.value = queued.value.filter((one) => one.turn > Math.max(0, ...turns))));
  });

  const open = new Set(/** @type {string[]} */ ([]));
  /** @type {Map<string, HTMLElement>} */ const goalRows = new Map();
  const isOfAgent = (/** @type {number} */ number) => {
    const record = records.byNumber.get(number);
    return Boolean(record?.reply || record?.thinking || record?.calls.length);
  };
  /** True if this is the first record of its turn with a text or call of the agent. @param {number} number */
  const isFirst = (number) => {
    let at = number;
    while (records.byNumber.get(at)?.events.every(({ event }) => event !== "TurnStarted") && !isOfAgent(at - 1)) at--;
    const begins = records.byNumber.get(at)?.events.some(({ event }) => event === "TurnStarted");
    return isOfAgent(number) && (begins || !isOfAgent(at - 1));
  };
  const body = h("ol.turns");
  const after = h("div.turns-end",
    each(() => run.live.value, (one) => `${one.run} ${one.activity_id}`, (one) => inFlight(run, one)),
    waitList(() => run.now.waits),
    each(() => queued.value, ({ turn }) => turn, (one) => {
      const { text, at, turn } = one.peek();
      return h("div.turn.is-queued", bubble("You", at, text, `waits for turn ${turn}`));
    }));
  const scroller = h("div.thread", { tabindex: 0, role: "region", "aria-label": "Conversation" }, body, after);
  const list = new WindowedList({
    scroller, body, after, estimate: 120, follow: true, onFollow: (is) => (following.value = is),
    render: (key) => {
      if (typeof key === "string") {
        const goal = /** @type {Goal} */ (goals().find((one) => one.id === key));
        const row = goalRows.get(key) ?? untracked(() => goalRow(id, goal, () => takeOwn(key)));
        goalRows.set(key, row);
        return row;
      }
      const record = records.byNumber.get(key);
      if (!record) void records.need(key, key);
      return record ? chatRow(id, record, isFirst(key), open, records.acts) : h("li.turn", skeleton(1));
    },
  });
  records.watchers.add((number) => {
    list.refresh(number);
    list.refresh(number + 1); // it may no longer be the first record of its turn
  });
  const keys = stable(() => {
    const [first, last] = records.range.value;
    void records.isLoaded.value;
    /** @type {(number|string)[]} */ const all = Array.from({ length: last - first + 1 }, (_, index) => first + index);
    for (const goal of goals().toSorted((a, b) => a.started.localeCompare(b.started))) {
      const place = all.findLastIndex((key) =>
        typeof key === "number" && (records.byNumber.get(key)?.started ?? "") <= goal.started);
      all.splice(place < 0 ? all.length : place + 1, 0, goal.id);
    }
    return all;
  });
  effect(() => list.setKeys(keys.value));
  const element = h("div.thread-box", scroller,
    button("↓ Newest", () => list.toEnd(), { class: "newest", hidden: () => following.value }));
  return { element, list, queued };
}

/** @param {import("./run/state.js").Run} run */
function session(run) {
  const { records } = run;
  const mode = signal("enqueue");
  const isBusy = computed(() => !run.now.ended && run.now.phase !== "idle");
  const known = resource(/** @type {"/runs"} */ (`/runs?kind=goal&text=${encodeURIComponent(`${id}.goal`)}`)).data;
  const begun = signal(/** @type {Goal[]} */ ([]));
  const goals = () => /** @type {Goal[]} */ ([...(known.value?.items ?? []), ...begun.value]);
  const { element, list, queued } = thread(run, goals);

  const send = async (/** @type {string} */ text) => {
    const now = new Date().toISOString();
    if (mode.peek() === "goal") {
      const name = `${id}.goal-${Date.now().toString(36)}`;
      const input = { goal: text, agent: run.now.agent ?? "default" };
      const { id: goal } = await post("/runs", { kind: "goal", id: name, input });
      ownGoals.set(`${ownGoals.get()} ${goal}`.trim());
      begun.value = [...begun.peek(), { id: goal, task: text, state: "preparing", started: now }];
      mode.value = "enqueue";
      announce(`The goal ${goal} has begun`);
    } else {
      const when_busy = isBusy.peek() ? mode.peek() : "enqueue";
      const answer = await post(`${runPath(id)}/actions`, { id: crypto.randomUUID(), kind: "send", text, when_busy });
      const turn = Number(/turn (\d+)/.exec(answer.detail ?? "")?.[1]);
      if (turn && when_busy !== "steer")
        queued.value = [...queued.peek().filter((one) => one.turn !== turn), { turn, text, at: now }];
      if (when_busy === "interrupt") mode.value = "enqueue";
    }
    list.toEnd();
  };
  const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ title) =>
    chip(label, () => mode.value === name, () => (mode.value = mode.peek() === name ? "enqueue" : name), { title });
  const limited = stable(() => run.now.budgets.filter((one) => one.limit !== null).slice(0, 4));
  const budgets = () => limited.value.map((one) => {
    const name = one.unit === "s" || one.unit === "usd" ? "" : words(one.name.replace(/^max_(total_)?/, ""));
    return `${name} ${shownValue(one, one.used)} of ${shownValue(one, one.limit ?? 0)}`.trim();
  }).join(" · ");
  const modes = h("div.row.composer-modes",
    () => (isBusy.value ? [
      choice("enqueue", "Queue", "A turn of its own, after this one"),
      choice("steer", "Steer", "Guides the turn that is under way"),
      choice("interrupt", "Interrupt", "Cuts this turn short and begins the next"),
    ] : null),
    choice("goal", "As a goal", "Plans, carries out and checks in a run of its own, whose answer comes back here"),
    () => isBusy.value ? button("■ Stop", () => run.send("interrupt", {}, "stop"), { class: "small danger" }) : null,
    h("span.small.faint.composer-budget",
      { title: "Enter sends, Shift+Enter breaks the line", "aria-label": "Budgets of this turn" }, budgets));
  const state = stable(() => run.now.state);
  const ended = stable(() => run.now.ended);
  waitKeys();
  effect(() => setTitle(`Chat with ${run.snapshot.value?.agent ?? "an agent"}`));
  const phase = computed(() => run.snapshot.value?.phase ?? "");
  onChange(() => phase.value, () => {
    if (phase.value === "idle") announce("The agent has answered");
    if (phase.value === "waiting") announce("The chat waits for a person");
  });
  return h("div.chat",
    h("header.chat-head",
      h("div.row", h("h1", () => run.now.agent ?? "Chat"), () => stateMark(state.value),
        h("span.soft.small", () => run.now.model_in_effect)),
      h("div.row", h("a.button", { href: "/chat/new" }, "New chat"), h("a.button", { href: runPath(id) }, "Run page"),
        runControls(run, []))),
    newestAct(run), troubles(run),
    () => (records.problem.value && !records.isLoaded.value
      ? failed(records.problem.value, () => void records.loadNewest()) : null),
    element,
    () => {
      if (!may("operator")) return h("p.composer.soft", "You need the role operator to write here.");
      if (!ended.value) return untracked(() => composer("Message", send, modes));
      return h("section.composer.is-over.row", stateMark(state.value), h("span.soft", "This chat has ended."),
        h("a.button.primary", { href: `/chat/new?from=${encodeURIComponent(id)}` }, "Go on with it"));
    });
}

if (id === "new") show(newChat());
else {
  const run = runState(id);
  show(pageOf("Chat", run.source, () => session(run)));
}
