// @ts-check
/** The page of a session: a conversation with an agent, in which what waits for a person is decided in the line. */
import { get, may, post } from "./api.js";
import { capital, count, money, duration, words } from "./format.js";
import { bubble, chatRow, goalRow } from "./run/chat_rows.js";
import { WindowedList } from "./run/list.js";
import { stateMark } from "./marks.js";
import { inFlight } from "./run/timeline.js";
import { newestAct, runControls } from "./run/controls.js";
import { troubles } from "./run/head.js";
import { address, runPath, runState, stable } from "./run/state.js";
import { announce, failed, setTitle, show, skeleton } from "./shell.js";
import { computed, each, effect, h, signal, untracked } from "./ui.js";
import { waitKeys, waitList } from "./waits.js";

const id = decodeURIComponent(location.pathname.split("/")[2] ?? "");

/** What the visitor has written and not sent, kept in the browser. @param {string} key */
const kept = (key) => ({
  get: () => localStorage.getItem(`orga-${key}-${id}`) ?? "",
  set: (/** @type {string} */ text) => (text ? localStorage.setItem(`orga-${key}-${id}`, text) : localStorage.removeItem(`orga-${key}-${id}`)),
});
const draft = kept("draft");
const queue = kept("queue");
/** The goals that this browser has started and whose answers the session does not have yet. */
const ownGoals = kept("goals");
/** @param {string} goal */
const takeOwn = (goal) => {
  const all = ownGoals.get().split(" ");
  ownGoals.set(all.filter((one) => one !== goal).join(" ").trim());
  return all.includes(goal);
};

/** @param {{placeholder: string, send: (text: string) => Promise<boolean>, more?: import("./ui.js").Child, after?: import("./ui.js").Child}} options */
function composer({ placeholder, send, more, after }) {
  const problem = signal("");
  const isBusy = signal(false);
  const area = h("textarea", { rows: 1, placeholder, "aria-label": placeholder, value: draft.get(), oninput: () => (draft.set(area.value), fit()) });
  const fit = () => {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight * 0.4)}px`;
  };
  const submit = async () => {
    const text = area.value.trim();
    if (!text || isBusy.peek()) return;
    isBusy.value = true;
    problem.value = "";
    try {
      if (await send(text)) {
        area.value = "";
        draft.set("");
        fit();
      }
    } catch (error) {
      problem.value = /** @type {any} */ (error).detail ?? String(error);
    }
    isBusy.value = false;
    area.focus();
  };
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void submit();
  });
  requestAnimationFrame(fit);
  return h("form.composer", { onsubmit: (/** @type {any} */ event) => (event.preventDefault(), void submit()) },
    more, h("p.error", { role: "alert", hidden: () => !problem.value }, problem),
    h("div.composer-line", area, h("button", { type: "submit", class: "primary", "aria-disabled": () => String(isBusy.value) }, "Send")), after);
}

function newChat() {
  setTitle("New chat");
  const from = address.get("from");
  const agent = h("input", { name: "agent", value: address.get("agent") || "default", list: "agents" });
  const model = h("input", { name: "model", placeholder: "the agent's own" });
  const limit = h("input", { name: "max_iterations", type: "number", min: 1, placeholder: "the agent's own" });
  const agents = signal(/** @type {string[]} */ ([]));
  get("/agents").then((found) => (agents.value = (found.items ?? []).map((/** @type {any} */ one) => one.name)), () => {});
  const send = async (/** @type {string} */ text) => {
    const config = limit.value ? { max_iterations: Number(limit.value) } : {};
    const { id: session } = await post("/runs", { kind: "session", input: { agent: agent.value || "default", ...(model.value ? { model: model.value } : {}), config } }, { key: `chat-${await digest(text)}` });
    const act = (/** @type {Record<string, unknown>} */ values) => post(`${runPath(session)}/actions`, { id: crypto.randomUUID(), ...values });
    if (from) {
      const before = await get(runPath(from));
      await act({ kind: "add_context", text: `This conversation goes on from an earlier run (${from}).\n\nIts task: ${before.task}\n\nIts answer: ${before.result?.output || before.detail || "none"}` });
    }
    await act({ kind: "send", text });
    draft.set("");
    location.href = `/chat/${encodeURIComponent(session)}`;
    return true;
  };
  return h("div.chat.is-new",
    h("header.chat-head", h("h1", from ? "Go on with a run" : "New chat")),
    h("section.chat-start.stack",
      from ? h("p", "The agent knows the task and the answer of ", h("a", { href: runPath(from) }, from), ".") : h("p.soft", "A chat is a run that goes on: its messages, its calls and your decisions stay, whatever happens to this page."),
      h("div.row", h("label.stack", "Agent", agent), h("label.stack", "Model", model), h("label.stack", "Iterations of a turn", limit)),
      h("datalist", { id: "agents" }, () => agents.value.map((name) => h("option", { value: name })))),
    composer({ placeholder: "Your first message", send }));
}

/** @param {string} text So that the same first message, sent twice, begins one chat. */
async function digest(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${text} ${sessionStorage.orgaChat ??= crypto.randomUUID()}`));
  return [...new Uint8Array(bytes)].slice(0, 12).map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function session() {
  const run = runState(id);
  const { records } = run;
  const isKnown = computed(() => run.snapshot.value !== null);
  const page = () => {
    const facts = stable(run, ({ state, agent, model_in_effect, ended, phase, budgets }) => ({ state, agent, model_in_effect, ended, phase, budgets }));
    const waits = stable(run, ({ waits }) => waits ?? []);
    const ended = stable(run, ({ ended, state }) => (ended ? state : ""));
    const isBusy = computed(() => !facts().ended && facts().phase !== "idle");
    const mode = signal("enqueue");
    const goals = signal(/** @type {any[]} */ ([]));
    const loadGoals = () => get(`/runs?kind=goal&text=${encodeURIComponent(`${id}.goal`)}`).then(({ items }) => (goals.value = items), () => {});
    void loadGoals();
    const following = signal(true);

    // Messages that were sent and have no turn yet
    const queued = signal(/** @type {{turn: number, text: string, at: string}[]} */ (JSON.parse(queue.get() || "[]")));
    effect(() => queue.set(queued.value.length ? JSON.stringify(queued.value) : ""));
    effect(() => {
      void records.version.value;
      const begun = Math.max(0, ...records.loaded().flatMap((record) => record.events.filter((event) => event.event === "TurnStarted").map((event) => event.data.turn)));
      untracked(() => {
        const left = queued.value.filter((one) => one.turn > begun);
        if (left.length !== queued.value.length) queued.value = left;
      });
    });

    const open = new Set(/** @type {string[]} */ ([]));
    /** @type {Map<string, HTMLElement>} */ const goalRows = new Map();
    const body = h("ol.turns");
    const after = h("div.turns-end",
      each(() => run.live.value, (one) => `${one.run} ${one.activity_id}`, (one) => inFlight(run, one)),
      waitList(waits),
      each(() => queued.value, (one) => one.turn, (one) => h("div.turn.is-queued", bubble("You", one.peek().at, h("p.plain", one.peek().text), h("p.small.faint", `waits for turn ${one.peek().turn}`)))));
    const scroller = h("div.thread", { tabindex: 0, role: "region", "aria-label": "Conversation" }, body, after);
    const list = new WindowedList({
      scroller, body, after, estimate: 120, follow: true, onFollow: (is) => (following.value = is),
      onWindow: (first, last) => {
        const numbers = list.keys.slice(first, last + 1).filter((key) => typeof key === "number");
        if (numbers.length) void records.need(Number(numbers[0]), Number(numbers.at(-1)));
      },
      render: (key) => {
        if (typeof key === "string") {
          const row = goals.peek().find((one) => one.id === key);
          if (!goalRows.has(key)) goalRows.set(key, untracked(() => goalRow(id, row, () => takeOwn(key))));
          return /** @type {HTMLElement} */ (goalRows.get(key));
        }
        const record = records.byNumber.get(key);
        return record ? chatRow(id, record, open, records.acts) : h("li.turn", skeleton(1));
      },
    });
    records.watchers.add((number) => list.refresh(number));
    let before = "";
    effect(() => {
      const [first, last] = records.range.value;
      void records.isLoaded.value;
      /** @type {(number|string)[]} */ const keys = Array.from({ length: last - first + 1 }, (_, index) => first + index);
      for (const goal of [...goals.value].sort((a, b) => (a.started < b.started ? -1 : 1))) {
        const place = keys.findLastIndex((key) => typeof key === "number" && (records.byNumber.get(key)?.started ?? "") <= goal.started);
        keys.splice(place < 0 ? keys.length : place + 1, 0, goal.id);
      }
      const now = keys.join(" ");
      if (now !== before) list.setKeys(keys);
      before = now;
    });

    const send = async (/** @type {string} */ text) => {
      if (mode.peek() === "goal") {
        const { id: goal } = await post("/runs", { kind: "goal", id: `${id}.goal-${Date.now().toString(36)}`, input: { goal: text, agent: facts().agent ?? "default" } });
        ownGoals.set(`${ownGoals.get()} ${goal}`.trim());
        mode.value = "enqueue";
        announce(`The goal ${goal} has begun`);
        setTimeout(() => void loadGoals(), 300);
        setTimeout(() => void loadGoals(), 2000);
      } else {
        const answer = await post(`${runPath(id)}/actions`, { id: crypto.randomUUID(), kind: "send", text, when_busy: isBusy.peek() ? mode.peek() : "enqueue" });
        const turn = Number(/turn (\d+)/.exec(answer.detail ?? "")?.[1]);
        if (turn && mode.peek() !== "steer") queued.value = [...queued.peek().filter((one) => one.turn !== turn), { turn, text, at: new Date().toISOString() }];
        if (mode.peek() === "interrupt") mode.value = "enqueue";
      }
      list.toEnd();
      return true;
    };
    const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ title) =>
      h("button", { type: "button", class: "chip", title, "aria-pressed": () => String(mode.value === name), onclick: () => (mode.value = mode.peek() === name ? "enqueue" : name) }, label);
    const modes = h("div.row.composer-modes",
      () => (isBusy.value ? [choice("enqueue", "Queue", "A turn of its own, after this one"), choice("steer", "Steer", "Guides the turn that is under way"), choice("interrupt", "Interrupt", "Cuts this turn short and begins the next")] : null),
      choice("goal", "As a goal", "Plans, carries out and checks in a run of its own, whose answer comes back here"),
      () => (isBusy.value ? h("button", { type: "button", class: "small danger", onclick: () => void run.send("interrupt", {}, "stop") }, "■ Stop") : null),
      h("span.small.faint.composer-budget", { title: "Enter sends, Shift+Enter breaks the line", "aria-label": "Budgets of this turn" }, () => (facts().budgets ?? []).filter((/** @type {any} */ one) => one.limit !== null).slice(0, 4).map((/** @type {any} */ one) => {
        const shown = one.unit === "usd" ? money : one.unit === "s" ? duration : count;
        return `${one.unit === "s" || one.unit === "usd" ? "" : `${words(one.name.replace(/^max_(total_)?/, ""))} `}${shown(one.used)} of ${shown(one.limit)}`;
      }).join(" · ")));
    return h("div.chat",
      h("header.chat-head",
        h("div.row", h("h1", () => facts().agent ?? "Chat"), () => stateMark(facts().state), h("span.soft.small", () => facts().model_in_effect ?? "")),
        h("div.row", h("a.button", { href: "/chat/new" }, "New chat"), h("a.button", { href: runPath(id) }, "Run page"), runControls(run, []))),
      newestAct(run), troubles(run),
      () => (records.problem.value && !records.isLoaded.value ? failed(records.problem.value, () => void records.loadNewest()) : null),
      h("div.thread-box", scroller, h("button", { type: "button", class: "newest", hidden: () => following.value, onclick: () => list.toEnd() }, "↓ Newest")),
      () => (ended() ? h("section.composer.is-over.row", stateMark(ended()), h("span.soft", "This chat has ended."), h("a.button.primary", { href: `/chat/new?from=${encodeURIComponent(id)}` }, "Go on with it"))
        : may("operator") ? untracked(() => composer({ placeholder: "Message", send, more: modes })) : h("p.composer.soft", "You need the role operator to write here.")));
  };
  waitKeys();
  show(() => (isKnown.value ? untracked(page) : run.source.problem.value ? h("div.stack.page-lost", h("h1", "Chat"), failed(run.source.problem.value, () => void run.source.reload())) : [h("h1", "Chat"), skeleton(8)]));
  effect(() => setTitle(`Chat with ${run.snapshot.value?.agent ?? "an agent"}`));
  let phase = "";
  effect(() => {
    const now = run.snapshot.value?.phase ?? "";
    if (phase && phase !== now && ["idle", "waiting", "done"].includes(now)) announce(now === "idle" ? "The agent has answered" : `The chat: ${capital(words(now))}`);
    phase = now;
  });
}

if (id === "new") show(newChat());
else session();
