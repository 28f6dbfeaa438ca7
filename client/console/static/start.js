// @ts-check
/**
 * Start a run. The form is made from the JSON Schema of the input.
 *
 * `?kind=goal` chooses the kind, `?again=ID` takes the input of a run, `?view=json` shows the input as JSON.
 */
import { address, runPath } from "./address.js";
import { asProblem, get, may, me, post, Problem, resource } from "./api.js";
import { field, fields, jsonView, keysOf } from "./form.js";
import { setTitle, show } from "./shell.js";
import { computed, effect, h, signal, untracked } from "./ui.js";
import { button, chip, chips, errorList, submits, view } from "./widgets.js";

/** The kinds of run. `text` is the key of the main text, and `verb` the label of the button. */
/** @type {Record<string, [label: string, about: string, text: string, verb: string]>} */
const KINDS = {
  agent: ["Task", "One agent works on it until it is done or a limit is reached.", "task", "Start the task"],
  goal: ["Goal", "A plan of steps, each scored, until the goal is reached.", "goal", "Pursue the goal"],
  session: ["Chat", "A conversation with an agent, which lasts as long as you want.", "", "Begin the chat"],
};
/** The keys that most people set, in this order. The others are folded. */
const COMMON = [
  "agent", "model", "tools", "skills", "tenant", "config.max_iterations", "config.max_total_tokens", "config.timeout_s",
  "config.max_cost_usd", "config.on_exhausted", "config.plan_review", "deliver", "output_schema",
];
/** Keys for runs that other runs start. Only the JSON shows them. */
const HIDDEN = new Set(["lineage", "messages"]);
const DRAFT = "orga-start";

const draft = JSON.parse(localStorage.getItem(DRAFT) ?? "null") ?? {};
const kind = computed(() => (KINDS[address.get("kind")] ? address.get("kind") : (draft.kind ?? "agent")));
const isJson = () => address.get("view") === "json";
/** The inputs by kind, so a change of the kind loses none. @type {Record<string, import("./ui.js").Signal<any>>} */
const inputs = Object.fromEntries(Object.keys(KINDS).map((name) => [name, signal(draft.inputs?.[name] ?? {})]));
const input = () => /** @type {import("./ui.js").Signal<any>} */ (inputs[kind.value]);
/** The idempotency key belongs to the input that was sent with it. @type {{key: string, of: string}} */
let sent = draft.sent ?? { key: "", of: "" };
const problem = signal(/** @type {Problem|null} */ (null));
const busy = signal(false);
const note = signal("");

function save() {
  const now = Object.fromEntries(Object.entries(inputs).map(([name, value]) => [name, value.value]));
  if (Object.values(now).some((value) => Object.keys(value).length))
    localStorage.setItem(DRAFT, JSON.stringify({ kind: kind.value, inputs: now, sent }));
}
effect(save);

// The schemas, and the names that may be chosen
/** @type {Record<string, ReturnType<typeof resource<`/schema/${string}`>>>} */
const schemas = {};
const schema = () => (
  schemas[kind.value] ??= untracked(() => resource(/** @type {const} */ (`/schema/${kind.peek()}`))));
const agents = resource("/agents").data;
const models = resource("/models").data;
const policy = resource(/** @type {string} */ ("/policies")).data;
const choices = {
  agent: () => agents.value?.items.map(({ name }) => name) ?? [],
  model: () => models.value?.items.map(({ model }) => model) ?? [],
  tools: () => agents.value?.items.find(({ name }) => name === (input().value.agent ?? "default"))?.tools ?? [],
};

/** The value of an empty field, often that of the agent. @param {string} where @returns {string|undefined} */
function standard(where) {
  const agent = agents.value?.items.find(({ name }) => name === (input().value.agent ?? "default"));
  if (where === "model") return agent?.model ? `${agent.model}, the agent's own` : undefined;
  if (where === "config.timeout_s" && kind.value === "goal") return "as long as its steps may take";
  if (where === "tenant") return "none";
  if (!where.startsWith("config.")) return undefined;
  const own = kind.value === "goal" ? undefined : agent?.config?.[where.slice(7)];
  if (own !== undefined && own !== null && typeof own !== "object") return `${own}`;
  return /^config\.max_(cost_usd|model_calls|tool_calls)$/.test(where) ? "no limit" : undefined;
}

const again = address.get("again");
if (again) {
  get(`${runPath(again)}/input`).then((found) => {
    address.set({ kind: found.kind, again: null });
    input().value = found.input;
    note.value = `The input is that of ${again}.`;
  }, (error) => (problem.value = asProblem(error)));
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
    location.href = kind.peek() === "session" ? `/chat/${encodeURIComponent(id)}` : runPath(id);
  } catch (error) {
    problem.value = asProblem(error);
    busy.value = false;
    setTimeout(() => /** @type {HTMLElement|null} */ (document.querySelector("[aria-invalid=true]"))?.focus());
  }
}

/** A problem names keys of the input, with or without `input.` before them. */
const problems = computed(() =>
  (problem.value?.errors ?? []).map(({ where, detail }) => ({ where: where.replace(/^input\./, ""), detail })));

/** @param {any} root */
function form(root) {
  const shown = {
    schema: root, value: input(), problems: () => problems.value, long: new Set(["task", "goal", "instructions"]),
    skip: new Set(COMMON), choices, standard,
  };
  const main = KINDS[kind.peek()]?.[2] ?? "";
  const rest = keysOf(shown).filter(([name = ""]) => name !== main && !COMMON.includes(name) && !HIDDEN.has(name));
  return [
    main ? field(shown, [main]) : null,
    h("div.fields", fields(shown, COMMON.map((path) => path.split(".")))),
    h("details.advanced", h("summary", "Advanced"), h("div.fields", fields(shown, rest))),
  ];
}

const clear = () => {
  input().value = {};
  problem.value = null;
  localStorage.removeItem(DRAFT);
};
const buttons = () => h("div.row",
  h("button.primary", { disabled: () => busy.value || !may("operator") },
    () => (busy.value ? "Starting…" : KINDS[kind.value]?.[3])),
  h("span.small.faint", h("kbd", "Ctrl"), h("kbd", "Enter")),
  may("operator") ? null
    : h("span.soft", me.read_only ? "This console is read-only." : "You need the role operator to start runs."),
  button("Clear", clear, { class: "quiet" }));

/** @param {string} name */
const choose = (name) => {
  problem.value = null;
  address.set({ kind: name });
};

/** The problems that no field shows. @param {Problem} found */
function summary(found) {
  const at = [...document.querySelectorAll("[data-where]")].map((one) => one.getAttribute("data-where"));
  const rest = problems.peek().filter(({ where }) =>
    isJson() || !at.some((known) => known === where || where.startsWith(`${known}.`)));
  return h("section.state.failed", { role: "alert" }, h("h2", "The run was not started"),
    rest.length ? errorList(rest) : h("p", found.errors.length ? "See the fields that are marked." : found.detail));
}

addEventListener("keydown", (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && void start());
setTitle("Start");
show(
  h("div.page-head", h("h1", "Start"),
    chips("What to start", Object.entries(KINDS).map(([name, [label]]) =>
      chip(label, () => kind.value === name, () => choose(name)))),
    chip("JSON", isJson, () => address.set({ view: isJson() ? "" : "json" }), { class: "end" })),
  h("p.soft", () => KINDS[kind.value]?.[1]),
  () => {
    const { engine = "", version, items = [] } = policy.value ?? {};
    const about = [engine, version && `version ${version}`, `${items.length} policies`].filter(Boolean).join(", ");
    return engine ? h("p.soft.small", "Policy in effect: ", h("a", { href: "/admin?view=policies" }, about)) : null;
  },
  () => (note.value ? h("p.soft.small", note.value) : null),
  () => (problem.value ? summary(problem.value) : null),
  () => view(schema(), (root) => {
    const content = isJson() ? jsonView(untracked(input), "The whole input as JSON") : untracked(() => form(root));
    return h("form.start.card.stack", { novalidate: true, ...submits(start) }, content, buttons());
  }),
);
