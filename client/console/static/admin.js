// @ts-check
/** What the workers have: settings, agents, models, tools, policies, schedules, workers, knowledge. `?view=` chooses. */
import { settingsView } from "./admin_settings.js";
import { get, may, me, post, Problem, resource } from "./api.js";
import { parse } from "./form.js";
import { DASH, capital, time, words } from "./format.js";
import { glyph, stateMark } from "./marks.js";
import { announce, ask, copy, empty, failed, setTitle, show, view } from "./shell.js";
import { computed, h, signal } from "./ui.js";

/** @typedef {import("./ui.js").Child} Child */
/** @typedef {[name: string, cell: (item: any) => Child]} Column */

const viewOf = () => new URLSearchParams(location.search).get("view") ?? "settings";
const chosen = signal(viewOf());
addEventListener("popstate", () => (chosen.value = viewOf()));

/** @param {string} name */
function choose(name) {
  history.pushState(null, "", `?view=${name}`);
  chosen.value = name;
}

/** @param {string} label @param {Column[]} columns @param {any[]} items */
const table = (label, columns, items) => h("div.scroll.card.flush", { tabindex: 0, role: "region", "aria-label": label }, h("table.roomy",
  h("thead", h("tr", columns.map(([name]) => h("th", name)))),
  h("tbody", items.map((item) => h("tr", columns.map(([, cell]) => h("td", cell(item) ?? DASH)))))));

/** @param {any[]|null|undefined} names */
const tags = (names) => (names?.length ? h("div.chips", names.map((name) => h("span.tag", name))) : DASH);

/** @param {string} summary @param {any} content */
function folded(summary, content) {
  const isNothing = content === null || content === undefined || content === "" || (typeof content === "object" && !Object.keys(content).length);
  return isNothing ? DASH : h("details", h("summary", summary), h("pre", { tabindex: 0 }, typeof content === "string" ? content : JSON.stringify(content, null, 2)));
}

/** @param {string} name @param {Child} [more] */
const named = (name, more) => [h("strong", name), more ? h("p.small.soft", more) : null];

/** @type {Column[]} */
const AGENTS = [
  ["Agent", (one) => named(one.name, one.description)],
  ["Model", (one) => one.model],
  ["Tools", (one) => tags(one.tools)],
  ["Delegates", (one) => tags(one.delegates.map((/** @type {any} */ each) => each.agent ?? each.name ?? each))],
  ["Limits", (one) => folded(`${one.config.max_iterations} iterations`, one.config)],
  ["Instructions", (one) => folded("Read", one.instructions)],
];
/** @type {Column[]} */
const MODELS = [
  ["Model", (one) => h("strong", one.model)],
  ["Named by", (one) => one.named_by || h("span.faint", "not used")],
  ["Usable", (one) => h("span", { class: `mark ${one.problem ? "tone-limit" : "tone-done"}` }, glyph(one.problem ? "timeout" : "ok"), one.problem ? "no" : "yes")],
  ["What it lacks", (one) => one.problem],
];
/** @type {Column[]} */
const TOOLS = [
  ["Tool", (one) => named(one.name, one.description)],
  ["From", (one) => one.source],
  ["Effect", (one) => (one.effect ? words(one.effect) : null)],
  ["Agents", (one) => tags(one.agents)],
  ["Options", (one) => folded("Show", one.options)],
  ["Parameters", (one) => folded("Schema", one.parameters)],
  ["Pinned", (one) => (one.digest ? h("code", { title: one.digest }, one.digest.slice(0, 16)) : null)],
];
/** @type {Column[]} */
const SERVERS = [["MCP server", (one) => h("strong", one.name)], ["Transport", (one) => one.transport], ["Pinned tools", (one) => one.pinned], ["Annotations trusted", (one) => (one.trust_annotations ? "yes" : "no")]];
/** @type {Column[]} */
const POLICIES = [
  ["Policy", (one) => named(one.id, one.place)],
  ["Effect", (one) => h("span", { class: `mark ${one.effect === "forbid" ? "tone-stop" : "tone-done"}` }, glyph(one.effect === "forbid" ? "denied" : "ok"), one.effect)],
  ["Text", (one) => h("pre", { tabindex: 0 }, one.text)],
];
/** @type {Column[]} */
const WORKERS = [
  ["Worker", (one) => h("code", one.identity)],
  ["Task queue", (one) => one.task_queue],
  ["Last seen", (one) => time(one.last_seen)],
  ["Build", (one) => [one.deployment, one.build].filter(Boolean).join(" ") || null],
  ["Configuration", (one) => (one.has_this_config ? "as here" : h("span.mark.tone-limit", glyph("timeout"), "another one"))],
  ["Loop held", (one) => one.blocked],
];
/** @type {Column[]} */
const FACTS = [
  ["Fact", (one) => h("span.plain", one.text)],
  ["Kind", (one) => one.kind],
  ["Source", (one) => one.provenance?.source || one.provenance?.workflow_id],
  ["Tenant", (one) => one.owner?.tenant || null],
  ["Confidence", (one) => one.confidence],
];

const agents = () => view(resource("/agents"), ({ items }) => table("Agents", AGENTS, items));
const models = () => view(resource("/models"), ({ items }) => table("Models", MODELS, items));
const tools = () => view(resource("/tools"), ({ items, servers }) => [servers.length ? table("MCP servers", SERVERS, servers) : null, table("Tools", TOOLS, items)]);
const policies = () => view(resource("/policies"), (data) => [
  h("p.soft", "Engine ", h("strong", data.engine), data.version ? [", version ", h("code", data.version)] : null, ". Policies are edited in their files, never here."),
  data.problem ? h("p.error", data.problem) : null,
  policyTest(),
  data.items.length ? table("Policies", POLICIES, data.items) : empty("No policies of your own", ["The engine's own rules count. Write some with ", h("code", "orga policy"), "."]),
]);
/** Judge a call that is only proposed. */
function policyTest() {
  const found = signal(/** @type {any} */ (null));
  const tool = h("input", { "aria-label": "Tool", placeholder: "Tool, such as run_command", required: true });
  const agent = h("input", { "aria-label": "Agent", placeholder: "Agent: default" });
  const effect = h("select", { "aria-label": "Effect" }, h("option", { value: "" }, "effect of the built-in tool"), ["read_only", "idempotent", "irreversible"].map((value) => h("option", { value }, words(value))));
  const values = h("textarea.code", { rows: 3, "aria-label": "Arguments as JSON", placeholder: '{"command": "ls"}' });
  const judge = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const parsed = parse(values.value);
    found.value = parsed.problem ? { problem: new Problem(0, `arguments: ${parsed.problem}`) }
      : await post("/policies/test", { tool: tool.value, arguments: parsed.value ?? {}, ...(agent.value ? { agent: agent.value } : {}), ...(effect.value ? { effect: effect.value } : {}) }).catch((problem) => ({ problem }));
  };
  return h("form.card.stack", { onsubmit: judge }, h("h2", "Judge a call"), h("p.soft.small", "Nothing is run."), h("div.fields", tool, agent, effect), values,
    h("div.row", h("button.primary", "Judge it")),
    () => !found.value ? null : found.value.problem ? failed(found.value.problem) : h("div.stack", { role: "status" }, h("p", stateMark(found.value.outcome), found.value.reason ? ` ${found.value.reason}` : ""),
      (found.value.policies ?? []).map((/** @type {any} */ policy) => h("div", h("code", policy.id), policy.text ? h("pre", { tabindex: 0 }, policy.text) : null))));
}

const workers = () => view(resource("/workers"), (data) => [
  h("p.soft", "Namespace ", h("strong", data.namespace), ", task queue ", h("strong", data.task_queue), me.ui_url ? [" · ", h("a", { href: me.ui_url, rel: "noopener noreferrer", target: "_blank" }, `Temporal UI ${me.ui_url}`)] : null),
  data.items.length ? table("Workers", WORKERS, data.items) : empty("No worker polls", ["Runs wait until one does. Start one with ", h("code", "orga worker"), "."], copy("orga worker")),
]);

function schedules() {
  const source = resource("/schedules");
  const outcome = signal("");
  /** @param {any} one @param {string} kind */
  const act = async (one, kind) => {
    if (kind === "delete" && !(await ask({ title: `Delete the schedule ${one.id}?`, body: "It starts no run any more. Runs that it has started go on.", action: "Delete", danger: true }))) return;
    try {
      await post(`/schedules/${encodeURIComponent(one.id)}/actions`, { kind });
      outcome.value = `${capital(kind)} ${one.id}: done`;
      announce(outcome.peek());
      await source.reload();
    } catch (error) {
      outcome.value = error instanceof Problem ? error.detail : String(error);
    }
  };
  /** @type {Column[]} */
  const columns = [
    ["Schedule", (one) => named(one.id, one.what)],
    ["State", (one) => [stateMark(one.paused ? "paused" : "active"), one.note ? h("p.small.soft", one.note) : null]],
    ["Times", (one) => [one.times.map((/** @type {string} */ text) => h("div", h("code", text))), h("span.small.faint", one.time_zone)]],
    ["Next runs", (one) => one.next.slice(0, 3).map((/** @type {string} */ at) => h("div", time(at)))],
    ["Last runs", (one) => one.runs.slice(-3).reverse().map((/** @type {any} */ run) => h("div", h("a", { href: `/runs/${encodeURIComponent(run.id)}` }, time(run.at)), " ", run.state ? stateMark(run.state) : null))],
    ["Actions", (one) => (may("admin") ? h("div.row", [one.paused ? "resume" : "pause", "trigger", "delete"].map((kind) => h("button", { type: "button", class: kind === "delete" ? "small danger" : "small", onclick: () => void act(one, kind) }, capital(kind)))) : null)],
  ];
  return [
    () => (outcome.value ? h("p", { role: "status" }, outcome.value) : null),
    view(source, ({ items }) => (items.length ? table("Schedules", columns, items) : empty("No schedules", ["A schedule starts runs at set times. Make one with ", h("code", "orga schedule"), "."]))),
  ];
}

function knowledge() {
  const found = signal(/** @type {any} */ (null));
  const text = h("input", { type: "search", class: "grow", "aria-label": "Search the knowledge", placeholder: "What do the agents know about …" });
  const tenant = h("input", { "aria-label": "Tenant", placeholder: "Tenant" });
  const search = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const query = new URLSearchParams({ text: text.value, ...(tenant.value ? { tenant: tenant.value } : {}) });
    found.value = await get(`/knowledge?${query}`).catch((problem) => ({ problem }));
  };
  return [
    h("form.row", { onsubmit: search }, text, tenant, h("button.primary", "Search")),
    () => {
      if (!found.value) return empty("Search what runs and people have learnt", "Each fact has the source that it came from.");
      if (found.value.problem) return failed(found.value.problem);
      return found.value.items.length ? table("Knowledge", FACTS, found.value.items) : empty("Nothing found", "Try other words, or name the tenant.");
    },
  ];
}

/** @type {Record<string, () => Child>} */
const VIEWS = { settings: settingsView, agents, models, tools, policies, schedules, workers, knowledge };
const current = computed(() => (chosen.value in VIEWS ? chosen.value : "settings"));

setTitle("Admin");
show(
  h("div.page-head", h("h1", "Admin")),
  h("div.chips", { role: "group", "aria-label": "What to show" }, Object.keys(VIEWS).map((name) =>
    h("button", { type: "button", class: "chip", "aria-pressed": () => String(current.value === name), onclick: () => choose(name) }, capital(name)))),
  () => VIEWS[current.value]?.(),
);
