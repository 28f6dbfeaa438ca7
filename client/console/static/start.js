// @ts-check
/** Start a run. The form is made from the contract's schema. `?kind=goal` chooses the kind, `?again=ID` takes the input of a run. */
import { get, may, me, post, Problem, resource } from "./api.js";
import { field, fields, jsonView, keysOf } from "./form.js";
import { failed, keys, setTitle, show, skeleton } from "./shell.js";
import { computed, effect, h, signal, untracked } from "./ui.js";

const KINDS = /** @type {Record<string, {label: string, about: string, text: string, verb: string}>} */ ({
  agent: { label: "Task", about: "One agent works on it until it is done or a limit is reached.", text: "task", verb: "Start the task" },
  goal: { label: "Goal", about: "A plan of steps, each scored, until the goal is reached.", text: "goal", verb: "Pursue the goal" },
  session: { label: "Chat", about: "A conversation with an agent, which lasts as long as you want.", text: "", verb: "Begin the chat" },
});
/** The keys that most people set, in this order. The others are folded. */
const COMMON = ["agent", "model", "tools", "skills", "tenant", "config.max_iterations", "config.max_total_tokens", "config.timeout_s", "config.max_cost_usd", "config.on_exhausted", "config.plan_review", "deliver", "output_schema"];
/** Keys of a run that others start: they are in the JSON alone. */
const HIDDEN = new Set(["lineage", "messages"]);
const LONG = new Set(["task", "goal", "instructions"]);
const DRAFT = "orga-start";

const given = new URLSearchParams(location.search);
const draft = JSON.parse(localStorage.getItem(DRAFT) ?? "null") ?? {};
const kind = signal(KINDS[given.get("kind") ?? ""] ? String(given.get("kind")) : (draft.kind ?? "agent"));
/** The input of each kind, so that a change of the kind loses nothing. @type {Record<string, import("./ui.js").Signal<any>>} */
const inputs = Object.fromEntries(Object.keys(KINDS).map((name) => [name, signal(draft.inputs?.[name] ?? {})]));
const input = () => /** @type {import("./ui.js").Signal<any>} */ (inputs[kind.value]);
/** The idempotency key belongs to the input that was sent with it. @type {{key: string, of: string}} */
let sent = draft.sent ?? { key: "", of: "" };
const problem = signal(/** @type {Problem|null} */ (null));
const busy = signal(false);
const asJson = signal(given.get("view") === "json");
const note = signal("");

function save() {
  const now = Object.fromEntries(Object.entries(inputs).map(([name, value]) => [name, value.value]));
  if (Object.values(now).some((value) => Object.keys(value).length)) localStorage.setItem(DRAFT, JSON.stringify({ kind: kind.value, inputs: now, sent }));
}
effect(save);
effect(() => {
  const search = new URLSearchParams({ kind: kind.value, ...(asJson.value ? { view: "json" } : {}) });
  history.replaceState(null, "", `?${search}`);
});

// The schemas, and the names that may be chosen
/** @type {Record<string, ReturnType<typeof resource>>} */
const schemas = {};
const schema = () => (schemas[kind.value] ??= untracked(() => resource(`/schema/${kind.peek()}`)));
const agents = signal(/** @type {any[]} */ ([]));
const models = signal(/** @type {any[]} */ ([]));
get("/agents").then(({ items }) => (agents.value = items), () => {});
get("/models").then(({ items }) => (models.value = items), () => {});
/** @param {any[]} items @returns {string[]} */
const nameOf = (items) => items.map((one) => one.name ?? one.model ?? one).filter((name) => typeof name === "string");
const tools = () => {
  const agent = agents.value.find((one) => one.name === (input().value.agent ?? "default"));
  return nameOf(Array.isArray(agent?.tools) ? agent.tools : []);
};

const again = given.get("again");
if (again) {
  get(`/runs/${encodeURIComponent(again)}/input`).then((found) => {
    kind.value = found.kind;
    input().value = found.input;
    note.value = `The input is that of ${again}.`;
  }, (error) => (problem.value = error));
}

async function start() {
  if (busy.peek()) return;
  busy.value = true;
  problem.value = null;
  const body = { kind: kind.peek(), input: input().peek() };
  if (sent.of !== JSON.stringify(body)) sent = { key: crypto.randomUUID(), of: JSON.stringify(body) };
  save();
  try {
    const { id } = await post("/runs", body, { key: sent.key });
    localStorage.removeItem(DRAFT);
    location.href = `${kind.peek() === "session" ? "/chat" : "/runs"}/${encodeURIComponent(id)}`;
  } catch (error) {
    problem.value = error instanceof Problem ? error : new Problem(0, String(error));
    busy.value = false;
    setTimeout(() => /** @type {HTMLElement|null} */ (document.querySelector("[aria-invalid=true]"))?.focus());
  }
}

/** A problem names keys of the input, with or without `input.` before them. */
const problems = computed(() => (problem.value?.errors ?? []).map(({ where, detail }) => ({ where: where.replace(/^input\./, ""), detail })));

/** @param {any} root */
function form(root) {
  const now = /** @type {string} */ (kind.peek());
  const shown = { schema: root, value: input(), problems: () => problems.value, long: LONG, skip: new Set(COMMON), choices: { agent: () => nameOf(agents.value), model: () => nameOf(models.value), tools } };
  const main = KINDS[now]?.text ?? "";
  const common = COMMON.map((path) => path.split(".")).map((path) => field(shown, path)).filter((one) => one !== null);
  const used = new Set([main, ...COMMON]);
  const rest = keysOf(shown).filter(([name = ""]) => !used.has(name) && !HIDDEN.has(name));
  return h("form.stack", { novalidate: true, onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void start()) },
    main ? field(shown, [main]) : null,
    h("div.fields", common),
    h("details.advanced", h("summary", "Advanced"), h("div.fields", fields(shown, rest))),
    buttons());
}

const buttons = () => h("div.row",
  h("button.primary", { disabled: () => busy.value || !may("operator") }, () => (busy.value ? "Starting…" : KINDS[kind.value]?.verb)),
  h("span.small.faint", h("kbd", "Ctrl"), h("kbd", "Enter")),
  may("operator") ? null : h("span.soft", me.read_only ? "This console is read-only." : "You need the role operator to start runs."),
  h("button", { type: "button", class: "quiet", onclick: () => ((input().value = {}), (problem.value = null), localStorage.removeItem(DRAFT)) }, "Clear"));

/** What no field shows. @param {Problem} found */
function summary(found) {
  const at = new Set([...document.querySelectorAll("[data-where]")].map((one) => /** @type {HTMLElement} */ (one).dataset.where));
  const rest = problems.peek().filter(({ where }) => asJson.peek() || ![...at].some((known) => known === where || where.startsWith(`${known}.`)));
  return h("section.state.failed", { role: "alert" }, h("h2", "The run was not started"),
    rest.length ? h("ul", rest.map(({ where, detail }) => h("li", h("code", where), ` ${detail}`))) : h("p", found.errors.length ? "See the fields that are marked." : found.detail));
}

keys({});
addEventListener("keydown", (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && void start());
setTitle("Start");
show(
  h("div.page-head", h("h1", "Start"),
    h("div.chips", { role: "group", "aria-label": "What to start" }, Object.entries(KINDS).map(([name, { label }]) =>
      h("button", { type: "button", class: "chip", "aria-pressed": () => String(kind.value === name), onclick: () => ((kind.value = name), (problem.value = null)) }, label))),
    h("button", { type: "button", class: "chip end", "aria-pressed": () => String(asJson.value), onclick: () => (asJson.value = !asJson.peek()) }, "JSON")),
  h("p.soft", () => KINDS[kind.value]?.about),
  () => (note.value ? h("p.soft.small", note.value) : null),
  () => (problem.value ? summary(problem.value) : null),
  () => {
    const { data, problem: missing, reload } = schema();
    if (missing.value) return failed(missing.value, reload);
    if (!data.value) return skeleton(6);
    return h("div.start.card", () => asJson.value
      ? h("form.stack", { novalidate: true, onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void start()) }, jsonView(untracked(input), "The whole input as JSON"), buttons())
      : untracked(() => form(data.peek())));
  },
);
