// @ts-check
/** The list of runs. The query of the address holds all filters, in the names of `GET /runs`. */
import { get, may, Problem, sendAction } from "./api.js";
import { DASH, capital, count, elapsed, money, time, words } from "./format.js";
import { glyph, stateMark, toneOf } from "./marks.js";
import { announce, ask, empty, failed, keys, setTitle, show, skeleton } from "./shell.js";
import { onEvent, subscribe } from "./stream.js";
import { batch, computed, each, effect, h, signal } from "./ui.js";

/** @typedef {{id: string, kind: string, task: string, agent: string|null, state: string, waiting: string|null, iteration: number|null, started: string, ended: string|null, cost_usd: number|null, tenant: string|null, folder: string|null, dead_letters: number, open_circuits: string[], may_be_more: boolean, stuck: string|null, worker_command: string}} Row */

const STATES = ["phase", "waiting", "ending"];
const SAVED = "orga-views";
const query = signal(location.search);
const rows = signal(/** @type {Row[]} */ ([]));
/** New runs that would move the rows under the pointer. */
const arrived = signal(/** @type {Row[]} */ ([]));
const counts = signal(/** @type {Record<string, number>|null} */ (null));
const next = signal(/** @type {string|null} */ (null));
const problem = signal(/** @type {Problem|null} */ (null));
const loaded = signal(false);
const selected = signal(/** @type {ReadonlySet<string>} */ (new Set()));
const outcome = signal("");
const given = computed(() => new URLSearchParams(query.value));

let turn = 0;
/** @param {boolean} [more] the next page, in addition */
async function load(more = false) {
  const own = ++turn;
  const search = more ? `${query.peek() ? `${query.peek()}&` : "?"}next=${encodeURIComponent(next.peek() ?? "")}` : query.peek();
  try {
    const page = await get(`/runs${search}`);
    if (own !== turn) return;
    batch(() => {
      const known = new Set(more ? rows.peek().map((row) => row.id) : []);
      rows.value = more ? [...rows.peek(), ...page.items.filter((/** @type {Row} */ row) => !known.has(row.id))] : page.items;
      counts.value = page.counts;
      next.value = page.next;
      problem.value = null;
      if (!more) arrived.value = [];
      loaded.value = true;
    });
  } catch (error) {
    if (own === turn) problem.value = error instanceof Problem ? error : new Problem(0, String(error));
  }
}

/** @param {Record<string, string|null>} changes */
function filter(changes) {
  const search = new URLSearchParams(query.peek());
  for (const [name, value] of Object.entries(changes)) value ? search.set(name, value) : search.delete(name);
  open(search.size ? `?${search}` : "");
}

/** @param {string} search @param {boolean} [push] */
function open(search, push = true) {
  if (search === query.peek()) return;
  if (push) history.pushState(null, "", search || location.pathname);
  batch(() => {
    query.value = search;
    loaded.value = false;
    selected.value = new Set();
  });
  void load();
}
addEventListener("popstate", () => open(location.search, false));

/** Whether a run that an event has belongs to the view. @param {Row} row */
function fits(row) {
  const wanted = given.peek();
  const text = (wanted.get("text") ?? "").toLowerCase();
  const ending = wanted.get("ending");
  const waiting = wanted.get("waiting");
  return (
    ["kind", "agent", "tenant", "folder"].every((name) => !wanted.get(name) || wanted.get(name) === /** @type {any} */ (row)[name]) &&
    (!wanted.get("phase") || (!row.ended && row.state === wanted.get("phase"))) &&
    (!ending || (row.ended !== null && (ending === "any" || row.state === ending))) &&
    (!waiting || (row.waiting !== null && (waiting === "any" || row.waiting === waiting))) &&
    (!wanted.get("from") || row.started >= String(wanted.get("from"))) &&
    (!wanted.get("to") || row.started < String(wanted.get("to"))) &&
    (!text || row.id.toLowerCase().includes(text) || row.task.toLowerCase().includes(text))
  );
}

onEvent("list", (/** @type {{rows: Row[], gone: string[], counts: Record<string, number>}} */ data) => {
  if (!loaded.peek()) return;
  const changed = new Map(data.rows.map((row) => [row.id, row]));
  const gone = new Set(data.gone);
  batch(() => {
    const shown = new Set([...rows.peek(), ...arrived.peek()].map((row) => row.id));
    const update = (/** @type {Row} */ row) => changed.get(row.id) ?? row;
    rows.value = rows.peek().filter((row) => !gone.has(row.id)).map(update);
    const oldest = rows.peek().at(-1)?.started ?? "";
    const fresh = data.rows.filter((row) => !shown.has(row.id) && fits(row) && (!next.peek() || row.started > oldest));
    arrived.value = [...fresh, ...arrived.peek().map(update)].sort((one, other) => other.started.localeCompare(one.started));
    if (![...given.peek().keys()].some((name) => !STATES.includes(name))) counts.value = data.counts;
  });
  if (!isPointedAt()) takeArrived();
});
onEvent("resync", ({ topics }) => topics.includes("runs") && void load());
subscribe(["runs"]);

const isPointedAt = () => Boolean(document.querySelector(".runs:hover, .runs:focus-within")) || scrollY > 200;

function takeArrived() {
  if (!arrived.peek().length) return;
  batch(() => {
    rows.value = [...arrived.peek(), ...rows.peek()];
    arrived.value = [];
  });
}

// Filters
/** @param {string} label @param {string} name the count @param {Record<string, string|null>} filters @param {boolean} [marked] */
function countChip(label, name, filters, marked = true) {
  const pressed = () => STATES.every((key) => (given.value.get(key) ?? null) === (filters[key] ?? null));
  const set = () => filter({ phase: null, waiting: null, ending: null, ...(pressed() ? {} : filters) });
  return h("button", { type: "button", class: "chip", "aria-pressed": () => String(pressed()), onclick: set }, marked ? glyph(name) : null, label, " ", h("b.figure", () => count(counts.value?.[name] ?? 0)));
}

/** Phases are those of live runs. */
const PHASES = new Set(["preparing", "planning", "reasoning", "gating", "acting", "observing", "paused", "idle"]);

const chips = () => {
  const others = Object.keys(counts.value ?? {}).filter((name) => !["all", "running", "waiting"].includes(name));
  return h("div.chips", { role: "group", "aria-label": "By state" },
    countChip("All", "all", {}, false),
    countChip("Waiting", "waiting", { waiting: "any" }),
    others.filter((name) => PHASES.has(name)).map((name) => countChip(capital(name), name, { phase: name })),
    others.filter((name) => !PHASES.has(name)).map((name) => countChip(capital(name), name, { ending: name })));
};

/** @param {string} name @param {string} label @param {Record<string, any>} [more] */
function field(name, label, more = {}) {
  const input = h("input", { name, value: () => given.value.get(name) ?? "", onchange: () => filter({ [name]: input.value.trim() }), ...more });
  return h("label.stack.small", label, input);
}

/** @param {string} name @param {string} label */
function timeField(name, label) {
  const local = () => {
    const at = given.value.get(name);
    return at ? new Date(Date.parse(at) - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  };
  const input = h("input", { type: "datetime-local", name, value: local, onchange: () => filter({ [name]: input.value ? new Date(input.value).toISOString() : null }) });
  return h("label.stack.small", label, input);
}

const KINDS = [["", "all kinds"], ["agent", "agents"], ["goal", "goals"], ["session", "chats"]];
const search = h("input", { type: "search", name: "text", "aria-label": "Search ids and tasks", placeholder: "Search ids and tasks  /", value: () => given.value.get("text") ?? "" });
let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => filter({ text: search.value.trim() }), 300);
});
const kind = h("select", { "aria-label": "Kind", value: () => given.value.get("kind") ?? "", onchange: () => filter({ kind: kind.value }) }, KINDS.map(([value, label]) => h("option", { value }, label)));
const MORE = ["agent", "tenant", "folder", "from", "to"];
const more = h("details.more", { open: () => MORE.some((name) => given.value.has(name)) }, h("summary", "More filters"),
  h("div.row.fields", field("agent", "Agent"), field("tenant", "Tenant"), field("folder", "Folder"), timeField("from", "Started from"), timeField("to", "Started before")));

// Saved views, in this browser
const saved = signal(/** @type {Record<string, string>} */ (JSON.parse(localStorage.getItem(SAVED) ?? "{}")));
/** @param {Record<string, string>} views */
function keep(views) {
  localStorage.setItem(SAVED, JSON.stringify(views));
  saved.value = views;
}
const naming = signal(false);
const views = () => h("div.chips", { role: "group", "aria-label": "Saved views" },
  Object.entries(saved.value).map(([name, search]) => [
    h("button", { type: "button", class: "chip", "aria-pressed": () => String(query.value === search), onclick: () => open(search) }, name),
    () => query.value === search ? h("button", { type: "button", class: "quiet small", "aria-label": `Forget the view ${name}`, onclick: () => keep(Object.fromEntries(Object.entries(saved.peek()).filter(([one]) => one !== name))) }, "✕") : null,
  ]),
  () => !query.value || Object.values(saved.value).includes(query.value) ? null : naming.value ? nameField() : h("button", { type: "button", class: "quiet small", onclick: () => (naming.value = true) }, "Save this view"));
function nameField() {
  const input = h("input", { "aria-label": "Name of the view", placeholder: "Name of the view", maxlength: 40 });
  const done = () => {
    if (input.value.trim()) keep({ ...saved.peek(), [input.value.trim()]: query.peek() });
    naming.value = false;
  };
  input.addEventListener("keydown", (event) => (event.key === "Enter" && done(), event.key === "Escape" && (naming.value = false)));
  queueMicrotask(() => input.focus());
  return [input, h("button", { type: "button", class: "small", onclick: done }, "Save")];
}

// Several at once
/** @param {string} verb */
async function actOnSelected(verb) {
  const chosen = rows.peek().filter((row) => selected.peek().has(row.id));
  const body = [
    h("ul.names", chosen.map((row) => h("li", row.task || row.id))),
    verb === "abort" ? h("p", "Each ends with what it has gathered. Effects that its tools had outside stay.") : null,
  ];
  if (!(await ask({ title: `${capital(verb)} ${chosen.length} ${chosen.length === 1 ? "run" : "runs"}?`, body, action: `${capital(verb)} ${chosen.length}`, danger: verb === "abort" }))) return;
  const sent = chosen.map((row) => ({ row, progress: sendAction(row.id, verb, verb === "abort" ? { reason: "aborted in the console" } : {}) }));
  selected.value = new Set();
  effect(() => {
    const states = sent.map(({ progress }) => progress.value);
    const refused = sent.filter(({ progress }) => ["refused", "failed"].includes(progress.value.state)).map(({ row, progress }) => `${row.task || row.id}: ${progress.value.detail}`);
    const through = states.filter(({ state }) => ["received", "applied"].includes(state)).length;
    outcome.value = `${verb}: ${through} of ${sent.length} taken${refused.length ? `; ${refused.join("; ")}` : ""}`;
  });
}

/** @param {string} id @param {boolean} on */
function select(id, on) {
  const now = new Set(selected.peek());
  on ? now.add(id) : now.delete(id);
  selected.value = now;
}

const bulk = () => (!selected.value.size && !outcome.value) ? null : h("div.bulk.row", { role: "region", "aria-label": "Selected runs" },
  selected.value.size ? [h("strong", `${selected.value.size} selected`), ...["pause", "resume", "abort"].map((verb) => h("button", { type: "button", class: verb === "abort" ? "danger" : "", onclick: () => void actOnSelected(verb) }, capital(verb))),
    h("button", { type: "button", class: "quiet", onclick: () => (selected.value = new Set()) }, "Select none")] : null,
  outcome.value ? h("span", { role: "status", class: "small" }, outcome.value) : null);

// The table
const columns = computed(() => ({ tenant: rows.value.some((row) => row.tenant), folder: new Set(rows.value.map((row) => row.folder)).size > 1 }));

/** @param {import("./ui.js").Signal<Row>} row */
function line(row) {
  const one = row.peek();
  const name = one.task || one.id;
  const state = () => [
    row.value.stuck ? h("span.mark.tone-fail", { title: row.value.stuck }, glyph("failed"), "stuck") : stateMark(row.value.state),
    row.value.waiting ? h("span.small.tone-wait", ` ${words(row.value.waiting)}`) : null,
  ];
  return h("tr", { class: () => `tone-${toneOf(row.value.state)}-row` },
    may("admin") ? h("td.pick", h("input", { type: "checkbox", "aria-label": `Select ${name}`, checked: () => selected.value.has(one.id), onchange: (/** @type {any} */ event) => select(one.id, event.target.checked) })) : null,
    h("td.state-cell", state),
    h("td.task", h("a", { href: `${one.kind === "session" ? "/chat/" : "/runs/"}${encodeURIComponent(one.id)}`, title: `${one.task}\n${one.id}` }, name),
      () => row.value.stuck ? h("p.small.tone-fail", row.value.stuck) : null,
      () => row.value.dead_letters ? h("span.tag.tone-fail", `${row.value.dead_letters} dead letters`) : null,
      () => row.value.open_circuits.map((circuit) => h("span.tag.tone-limit", `${circuit} circuit open`))),
    h("td.agent", one.agent ?? DASH, h("span.faint", one.kind === "agent" ? "" : ` ${one.kind === "session" ? "chat" : one.kind}`)),
    h("td.num.started", time(one.started)),
    h("td.num", () => elapsed(row.value.started, row.value.ended)),
    h("td.num", { "data-unit": "iterations" }, () => count(row.value.iteration), () => (row.value.may_be_more ? h("abbr", { title: "may be more by now" }, "+") : null)),
    h("td.num", () => money(row.value.cost_usd)),
    () => (columns.value.tenant ? h("td.wide", { title: one.tenant }, one.tenant ?? DASH) : null),
    () => (columns.value.folder ? h("td.wide.folder", { title: one.folder }, one.folder?.split("/").pop() ?? DASH) : null));
}

const all = h("input", { type: "checkbox", "aria-label": "Select all shown", checked: () => rows.value.length > 0 && selected.value.size === rows.value.length, onchange: () => (selected.value = new Set(all.checked ? rows.peek().map((row) => row.id) : [])) });
const table = h("table.runs", { onmouseleave: () => setTimeout(() => isPointedAt() || takeArrived(), 400) },
  h("thead", h("tr", may("admin") ? h("th.pick", all) : null, h("th", "State"), h("th", "Task"), h("th", "Agent"), h("th.num", "Started"), h("th.num", "Took"), h("th.num", "Iterations"), h("th.num", "Cost"),
    () => (columns.value.tenant ? h("th.wide", "Tenant") : null), () => (columns.value.folder ? h("th.wide", "Folder") : null))),
  h("tbody", each(() => rows.value, (row) => row.id, line)));

function byId() {
  const input = h("input", { "aria-label": "Id of a run", placeholder: "agent-0198…" });
  return h("form.row", { onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), input.value.trim() && (location.href = `/runs/${encodeURIComponent(input.value.trim())}`)) }, input, h("button", "Open this run"));
}

const body = () => {
  if (problem.value && !loaded.value) return [failed(problem.value, () => load()), h("div.card.stack", h("p", "A run opens by its id even if the server lists none."), byId())];
  if (!loaded.value) return skeleton(10);
  if (rows.value.length) return null;
  if (query.value) return empty("No run fits these filters", "Counts above are of all runs.", h("button", { type: "button", onclick: () => open("") }, "Show all runs"), byId());
  return empty("No runs yet", ["A run that starts appears here by itself. Start one here, or with ", h("code", 'orga run "…"'), "."], h("a.button.primary", { href: "/start" }, "Start a run"), byId());
};

/** @param {number} step */
function move(step) {
  const links = /** @type {HTMLElement[]} */ ([...table.querySelectorAll(".task a")]);
  const at = links.findIndex((link) => link.closest("tr")?.contains(document.activeElement));
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
}
keys({
  j: ["next run", () => move(1)],
  k: ["run before", () => move(-1)],
  x: ["select this run", () => /** @type {HTMLElement|null|undefined} */ (document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]"))?.click()],
  n: ["show the new runs", takeArrived],
});
effect(() => arrived.value.length && announce(`${arrived.value.length} new runs`));

setTitle("Runs");
void load();
show(
  h("div.page-head", h("h1", "Runs"), search, kind, h("a.button.primary.end", { href: "/start" }, "Start a run")),
  () => (counts.value ? chips() : null), more, views, bulk,
  () => (arrived.value.length ? h("button", { type: "button", class: "arrived", onclick: takeArrived }, `${arrived.value.length} new`) : null),
  h("div.scroll.card.flush", { hidden: () => !loaded.value || !rows.value.length }, table),
  body,
  () => (next.value && loaded.value ? h("button", { type: "button", onclick: () => load(true) }, "Older runs") : null),
);
