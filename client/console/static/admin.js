// @ts-check
/** Settings, agents, models, tools, policies, schedules, workers and knowledge. `?view=` chooses. */
import { address, runPath } from "./address.js";
import { settingsView } from "./admin_settings.js";
import { get, may, me, post, Problem, resource } from "./api.js";
import { DASH, capital, parse, time, words } from "./format.js";
import { glyph, stateMark } from "./marks.js";
import { announce, ask, setTitle, show } from "./shell.js";
import { computed, h, signal } from "./ui.js";
import { asJson, button, chip, chips, copy, empty, failed, plain, submits, table, view } from "./widgets.js";

/** @typedef {import("./ui.js").Child} Child */
/** @typedef {[name: string, cell: (item: any) => Child][]} Columns */

/** @param {string} label @param {Columns} columns @param {any[]} items */
const list = (label, columns, items) => table(label, columns, items, { class: "roomy" });

/** @param {string[]} names */
const tags = (names) => (names.length ? h("div.chips", names.map((name) => h("span.tag", name))) : DASH);

/** @param {string} summary @param {any} content */
const folded = (summary, content) =>
  content && (typeof content !== "object" || Object.keys(content).length)
    ? h("details", h("summary", summary), asJson(content)) : DASH;

/** @param {string} name @param {Child} more */
const named = (name, more) => [h("strong", name), more ? h("p.small.soft", more) : null];

/** @param {any[]} items @param {(item: any) => Child} content */
const lines = (items, content) => items.map((item) => h("div", content(item)));

/** @param {string} tone @param {string} state @param {string} text */
const mark = (tone, state, text) => h("span.mark", { class: `tone-${tone}` }, glyph(state), text);

/** @param {boolean|null|undefined} is Null: it was not asked. */
const answers = (is) => (is ? mark("done", "ok", "yes") : is === false ? mark("fail", "failed", "no") : DASH);

/** @type {Columns} */
const AGENTS = [
  ["Agent", (one) => named(one.name, one.description)],
  ["Model", (one) => one.model],
  ["Tools", (one) => tags(one.tools)],
  ["Delegates", (one) => tags(one.delegates.map((/** @type {any} */ each) => each.agent ?? each.name ?? each))],
  ["Limits", (one) => folded(`${one.config.max_iterations} iterations`, one.config)],
  ["Instructions", (one) => folded("Read", one.instructions)],
];
/** @type {Columns} */
const MODELS = [
  ["Model", (one) => h("strong", one.model)],
  ["Named by", (one) => one.named_by || h("span.faint", "not used")],
  ["Usable", (one) => (one.problem ? mark("limit", "timeout", "no") : mark("done", "ok", "yes"))],
  ["Answers", (one) => answers(one.reachable)],
  ["What it lacks", (one) => one.problem || one.warning],
  ["USD for a million tokens", (one) => one.input_price && `${one.input_price} in, ${one.output_price} out`],
];
/** @type {Columns} */
const TOOLS = [
  ["Tool", (one) => named(one.name, one.description)],
  ["From", (one) => h("span.nowrap", one.source)],
  ["Effect", (one) => (one.effect ? words(one.effect) : null)],
  ["Agents", (one) => tags(one.agents)],
  ["Options", (one) => folded("Show", one.options)],
  ["Parameters", (one) => folded("Schema", one.parameters)],
  ["Pinned", (one) => (one.digest ? h("code", { title: one.digest }, one.digest.slice(0, 16)) : null)],
];
/** @type {Columns} */
const SERVERS = [
  ["MCP server", (one) => h("strong", one.name)],
  ["Transport", (one) => one.transport],
  ["Pinned tools", (one) => one.pinned],
  ["Annotations trusted", (one) => (one.trust_annotations ? "yes" : "no")],
  ["Answers", (one) => answers(one.reachable)],
];
/** @type {Columns} */
const POLICIES = [
  ["Policy", (one) => named(one.id, one.place)],
  ["Effect", (one) => (one.effect === "forbid" ? mark("stop", "denied", "forbid") : mark("done", "ok", one.effect))],
  ["Text", (one) => plain(one.text)],
];
/** @type {Columns} */
const WORKERS = [
  ["Worker", (one) => h("code", one.identity)],
  ["Task queue", (one) => one.task_queue],
  ["Last seen", (one) => time(one.last_seen)],
  ["Build", (one) => [one.deployment, one.build].filter(Boolean).join(" ") || null],
  ["Configuration", (one) => (one.has_this_config ? "as here" : mark("limit", "timeout", "another one"))],
  ["Loop held", (one) => one.blocked],
];
/** @type {Columns} */
const FACTS = [
  ["Fact", (one) => h("span.plain", one.text)],
  ["Kind", (one) => one.kind],
  ["Source", (one) => one.provenance?.source || one.provenance?.workflow_id],
  ["Tenant", (one) => one.owner?.tenant || null],
  ["Confidence", (one) => one.confidence],
];

/** @param {string} path The path of an answer whose items have no type here. */
const read = (path) => resource(path);

/** A view with a button that asks providers or servers. @param {string} path @param {(data: any) => Child} content */
function checked(path, content) {
  const source = signal(read(path));
  const check = () => (source.value = read(`${path}?check=true`));
  const label = "Ask providers and servers whether they answer";
  return [() => view(source.value, content), may("operator") ? h("div.row", button(label, check)) : null];
}

const agents = () => view(read("/agents"), ({ items }) => list("Agents", AGENTS, items));
const models = () => checked("/models", ({ items }) => list("Models", MODELS, items));
const tools = () => checked("/tools", ({ items, servers }) =>
  [servers.length ? list("MCP servers", SERVERS, servers) : null, list("Tools", TOOLS, items)]);

const NO_POLICY = ["The engine's own rules count. Write some with ", h("code", "orga policy"), "."];
const policies = () => view(read("/policies"), ({ engine, version, problem, items }) => [
  h("p.soft", "Engine ", h("strong", engine), version ? [", version ", h("code", version)] : null,
    ". Policies are edited in their files, never here."),
  problem ? h("p.error", problem) : null,
  policyTest(),
  items.length ? list("Policies", POLICIES, items) : empty("No policies of your own", NO_POLICY),
]);

/** The form that judges a call without running it. */
function policyTest() {
  const found = signal(/** @type {any} */ (null));
  const tool = h("input", { "aria-label": "Tool", placeholder: "Tool, such as run_command", required: true });
  const agent = h("input", { "aria-label": "Agent", placeholder: "Agent: default" });
  const effects = ["read_only", "idempotent", "irreversible"];
  const effect = h("select", { "aria-label": "Effect" }, h("option", { value: "" }, "effect of the built-in tool"),
    effects.map((value) => h("option", { value }, words(value))));
  const values = h("textarea.code", { rows: 3, "aria-label": "Arguments as JSON", placeholder: '{"command": "ls"}' });
  const judge = async () => {
    const { problem, value } = parse(values.value);
    const more = { agent: agent.value || undefined, effect: effect.value || undefined };
    const call = { tool: tool.value, arguments: value ?? {}, ...more };
    found.value = problem ? { problem: new Problem(0, `arguments: ${problem}`) }
      : await post("/policies/test", call).catch((failure) => ({ problem: failure }));
  };
  return h("form.card.stack", submits(judge), h("h2", "Judge a call"), h("p.small.soft", "Nothing is run."),
    h("div.fields", tool, agent, effect), values, h("div.row", h("button.primary", "Judge it")),
    () => {
      if (!found.value) return null;
      const { problem, outcome, reason, policies: deciding = [] } = found.value;
      if (problem) return failed(problem);
      return h("div.stack", { role: "status" }, h("p", stateMark(outcome), reason ? ` ${reason}` : ""),
        deciding.map((/** @type {any} */ { id, text }) => h("div", h("code", id), text ? plain(text) : null)));
    });
}

const workers = () => view(read("/workers"), ({ namespace, task_queue, retention_days: days, items }) => [
  h("p.soft", "Namespace ", h("strong", namespace), ", task queue ", h("strong", task_queue),
    days ? `. The server keeps a run for ${days} days after its end` : null, ". ",
    me.ui_url ? h("a", { href: me.ui_url, rel: "noopener", target: "_blank" }, "Temporal UI") : null),
  items.length ? list("Workers", WORKERS, items)
    : empty("No worker polls", "Runs wait until one does. Start one with `orga worker`.", copy("orga worker")),
]);

function schedules() {
  const source = read("/schedules");
  const outcome = signal("");
  /** @param {any} one @param {string} kind */
  const act = async (one, kind) => {
    const question = {
      title: `Delete the schedule ${one.id}?`, body: "It starts no more runs. Runs that it has started go on.",
      action: "Delete", danger: true,
    };
    if (kind === "delete" && !(await ask(question))) return;
    try {
      await post(`/schedules/${encodeURIComponent(one.id)}/actions`, { kind });
      outcome.value = `${capital(kind)} ${one.id}: done`;
      announce(outcome.peek());
      await source.reload();
    } catch (error) {
      outcome.value = `${capital(kind)} ${one.id}: ${/** @type {any} */ (error).detail ?? error}`;
    }
  };
  /** @type {Columns} */
  const columns = [
    ["Schedule", (one) => named(one.id, one.what)],
    ["State", (one) => [stateMark(one.paused ? "paused" : "active"), one.note ? h("p.small.soft", one.note) : null]],
    ["Times", (one) => [lines(one.times, (text) => h("code", text)), h("span.small.faint", one.time_zone)]],
    ["Next runs", (one) => lines(one.next.slice(0, 3), time)],
    ["Last runs", (one) => lines(one.runs.slice(-3).reverse(),
      ({ id, at, state }) => [h("a", { href: runPath(id) }, time(at)), " ", state ? stateMark(state) : null])],
    ["Actions", (one) => may("admin") ? h("div.row", actsOn(one).map((kind) =>
      button(capital(kind), () => act(one, kind), { class: kind === "delete" ? "small danger" : "small" }))) : null],
  ];
  const actsOn = (/** @type {any} */ { paused }) => [paused ? "resume" : "pause", "trigger", "delete"];
  const none = ["A schedule starts runs at set times. Make one with ", h("code", "orga schedule"), "."];
  return [
    () => (outcome.value ? h("p", { role: "status" }, outcome.value) : null),
    view(source, ({ items }) => (items.length ? list("Schedules", columns, items) : empty("No schedules", none))),
  ];
}

function knowledge() {
  const found = signal(/** @type {any} */ (null));
  const text = h("input.grow", {
    type: "search", "aria-label": "Search the knowledge", placeholder: "What do the agents know about …",
  });
  const tenant = h("input", { "aria-label": "Tenant", placeholder: "Tenant" });
  const search = async () => {
    const query = new URLSearchParams({ text: text.value, ...(tenant.value ? { tenant: tenant.value } : {}) });
    found.value = await get(`/knowledge?${query}`).catch((problem) => ({ problem }));
  };
  return [
    h("form.row", submits(search), text, tenant, h("button.primary", "Search")),
    () => {
      if (!found.value) return empty("Search what runs and people have learnt", "Each fact shows its source.");
      const { problem, items } = found.value;
      if (problem) return failed(problem);
      return items.length ? list("Knowledge", FACTS, items)
                          : empty("Nothing found", "Try other words, or name the tenant.");
    },
  ];
}

/** @type {Record<string, () => Child>} */
const VIEWS = { settings: settingsView, agents, models, tools, policies, schedules, workers, knowledge };
const current = computed(() => (address.get("view") in VIEWS ? address.get("view") : "settings"));

setTitle("Admin");
show(
  h("div.page-head", h("h1", "Admin")),
  chips("What to show", Object.keys(VIEWS).map((name) =>
    chip(capital(name), () => current.value === name, () => address.set({ view: name }, true)))),
  () => VIEWS[current.value]?.(),
);
