// @ts-check
/** The list of runs. The query of the address has all filters, under the names that `GET /runs` uses. */
import { address, runPath } from "./address.js";
import { may, resource, sendAction } from "./api.js";
import { DASH, capital, count, elapsed, money, time, words } from "./format.js";
import { glyph, stateMark } from "./marks.js";
import { announce, ask, keys, moveFocus, setTitle, show } from "./shell.js";
import { onEvent, subscribe } from "./stream.js";
import { batch, computed, each, effect, h, onChange, signal, untracked } from "./ui.js";
import { button, chip, chips, empty, failed, labelled, skeleton, submits } from "./widgets.js";

/** @typedef {import("orga-api").Answer<"/runs">} List */
/** @typedef {List["items"][number]} Row */

const STATES = ["phase", "waiting", "ending"];
const SAVED = "orga-views";
const list = resource(() => /** @type {"/runs"} */ (`/runs${address.query.peek()}`));
const rows = computed(() => list.data.value?.items ?? []);
const next = computed(() => list.data.value?.next ?? null);
/** Runs by state. The counts of the previous view stay while another is read. A search has no numbers. */
const counts = signal(/** @type {Record<string, number|null>|null} */ (null));
/** New runs that are not shown yet, because they would move the rows under the pointer. */
const arrived = signal(/** @type {Row[]} */ ([]));
const selected = signal(/** @type {ReadonlySet<string>} */ (new Set()));
const outcome = signal("");

onChange(() => address.query.value, () => batch(() => {
  list.data.value = null;
  selected.value = new Set();
  void list.reload();
}));
effect(() => {
  const known = counts.peek() ?? { all: 0, running: 0, waiting: 0 };
  if (list.data.value)
    counts.value = list.data.value.counts ?? Object.fromEntries(Object.keys(known).map((name) => [name, null]));
});

/** True if a run from an event belongs to the view. @param {Row} row */
const fits = (row) => untracked(() => {
  const { get } = address;
  const text = get("text").toLowerCase();
  const any = (/** @type {string} */ name, /** @type {string|null} */ has) => !get(name) || get(name) === has ||
    (get(name) === "any" && has !== null);
  return any("kind", row.kind) && any("agent", row.agent) && any("tenant", row.tenant) && any("folder", row.folder) &&
    any("phase", row.ended ? null : row.state) && any("ending", row.ended && row.state) &&
    any("waiting", row.waiting) && (!get("from") || row.started >= get("from")) &&
    (!get("to") || row.started < get("to")) && (!text || `${row.id}\n${row.task}`.toLowerCase().includes(text));
});

onEvent("list", (/** @type {{rows: Row[], gone: string[], counts: Record<string, number>}} */ news) => {
  const known = list.data.peek();
  if (!known) return;
  const changed = new Map(news.rows.map((row) => [row.id, row]));
  const shown = new Set([...known.items, ...arrived.peek()].map((row) => row.id));
  const oldest = known.items.at(-1)?.started ?? "";
  const fresh = news.rows.filter((row) => !shown.has(row.id) && fits(row) && (!known.next || row.started > oldest));
  const update = (/** @type {Row[]} */ all) =>
    all.filter((row) => !news.gone.includes(row.id)).map((row) => changed.get(row.id) ?? row);
  const isAll = ![...new URLSearchParams(address.query.peek()).keys()].some((name) => !STATES.includes(name));
  batch(() => {
    list.data.value = { ...known, items: update(known.items), counts: isAll ? news.counts : known.counts };
    arrived.value = [...fresh, ...update(arrived.peek())].sort(
      (one, other) => other.started.localeCompare(one.started));
  });
  if (!isPointedAt()) takeArrived();
});
onEvent("resync", ({ topics }) => topics.includes("runs") && void list.reload());
subscribe(["runs"]);

const isPointedAt = () => Boolean(document.querySelector(".runs:hover, .runs:focus-within")) || scrollY > 200;

function takeArrived() {
  const known = list.data.peek();
  if (!known || !arrived.peek().length) return;
  const ids = new Set(known.items.map((row) => row.id));
  batch(() => {
    list.data.value = { ...known, items: [...arrived.peek().filter((row) => !ids.has(row.id)), ...known.items] };
    arrived.value = [];
  });
}

// Filters
/** @param {string} label @param {string} name the count @param {Record<string, string>} filters */
function countChip(label, name, filters) {
  const isOn = () => STATES.every((key) => address.get(key) === (filters[key] ?? ""));
  const act = () => address.set({ phase: "", waiting: "", ending: "", ...(isOn() ? {} : filters) }, true);
  const figure = () => {
    const number = counts.value && name in counts.value ? counts.value[name] : 0;
    return number === null ? "" : count(number ?? 0);
  };
  return chip([name === "all" ? null : glyph(name), label, " ", h("b.figure", figure)], isOn, act);
}

/** The states that are phases of live runs. All others are endings. */
const PHASES = new Set(["preparing", "planning", "reasoning", "gating", "acting", "observing", "paused", "idle"]);

const stateChips = () => {
  const others = Object.keys(counts.value ?? {}).filter((name) => !["all", "running", "waiting"].includes(name));
  others.sort((one, other) => Number(PHASES.has(other)) - Number(PHASES.has(one)));
  return chips("By state", countChip("All", "all", {}), countChip("Waiting", "waiting", { waiting: "any" }),
    others.map((name) => countChip(capital(name), name, { [PHASES.has(name) ? "phase" : "ending"]: name })));
};

/** @param {string} label @param {string} name */
const field = (label, name) => labelled(label, h("input", {
  name, value: () => address.get(name),
  onchange: (/** @type {any} */ event) => address.set({ [name]: event.target.value.trim() }, true),
}));

/** @param {string} label @param {string} name */
function timeField(label, name) {
  const local = () => {
    const at = address.get(name);
    const zone = new Date(at).getTimezoneOffset() * 60_000;
    return at ? new Date(Date.parse(at) - zone).toISOString().slice(0, 16) : "";
  };
  return labelled(label, h("input", {
    type: "datetime-local", name, value: local,
    onchange: (/** @type {any} */ { target }) =>
      address.set({ [name]: target.value && new Date(target.value).toISOString() }, true),
  }));
}

const search = h("input", {
  type: "search", name: "text", "aria-label": "Search ids and tasks", placeholder: "Search ids and tasks  /",
  value: () => address.get("text"),
});
let typing = 0;
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => address.set({ text: search.value.trim() }, true), 300);
});
const kind = h("select",
  { "aria-label": "Kind", value: () => address.get("kind"), onchange: () => address.set({ kind: kind.value }, true) },
  [["", "all kinds"], ["agent", "agents"], ["goal", "goals"], ["session", "chats"]].map(([value, label]) =>
    h("option", { value }, label)));
const more = h("details.more",
  { open: () => ["agent", "tenant", "folder", "from", "to"].some((name) => address.get(name)) },
  h("summary", "More filters"),
  h("div.fields.small", field("Agent", "agent"), field("Tenant", "tenant"), field("Folder", "folder"),
    timeField("Started from", "from"), timeField("Started before", "to")));

// Saved views, in this browser
const saved = signal(/** @type {Record<string, string>} */ (JSON.parse(localStorage.getItem(SAVED) ?? "{}")));
/** @param {Record<string, string>} views */
function keep(views) {
  localStorage.setItem(SAVED, JSON.stringify(views));
  saved.value = views;
}
const naming = signal(false);
/** @param {string} name */
const forget = (name) => keep(Object.fromEntries(Object.entries(saved.peek()).filter(([one]) => one !== name)));
const views = () => chips("Saved views",
  Object.entries(saved.value).map(([name, view]) => [
    chip(name, () => address.query.value === view, () => address.open(view)),
    () => address.query.value === view
      ? button("✕", () => forget(name), { class: "quiet small", "aria-label": `Forget the view ${name}` }) : null,
  ]),
  () => {
    if (!address.query.value || Object.values(saved.value).includes(address.query.value)) return null;
    return naming.value ? nameField() : button("Save this view", () => (naming.value = true), { class: "quiet small" });
  });
function nameField() {
  const input = h("input", { "aria-label": "Name of the view", placeholder: "Name of the view", maxlength: 40 });
  const save = () => {
    if (input.value.trim()) keep({ ...saved.peek(), [input.value.trim()]: address.query.peek() });
    naming.value = false;
  };
  queueMicrotask(() => input.focus());
  return h("form.row", submits(save), input, h("button.small", "Save"));
}

// Several at once
const chosenRows = computed(() => rows.value.filter((row) => selected.value.has(row.id)));
const liveChosen = computed(() => chosenRows.value.filter((row) => !row.ended));

/** @param {string} verb */
async function actOnSelected(verb) {
  const isAbort = verb === "abort";
  const chosen = liveChosen.peek();
  const body = [
    h("ul.names", chosen.map((row) => h("li", row.task || row.id))),
    isAbort ? h("p", "Each ends with what it has gathered. Effects that its tools had outside stay.") : null,
  ];
  const title = `${capital(verb)} ${chosen.length} ${chosen.length === 1 ? "run" : "runs"}?`;
  if (!(await ask({ title, body, action: `${capital(verb)} ${chosen.length}`, danger: isAbort }))) return;
  const values = isAbort ? { reason: "aborted in the console" } : {};
  const sent = chosen.map((row) => ({ row, progress: sendAction(row.id, verb, values) }));
  selected.value = new Set();
  effect(() => {
    const states = sent.map(({ row, progress }) => ({ name: row.task || row.id, ...progress.value }));
    const refused = states.filter(({ state }) => state === "refused" || state === "failed");
    const taken = states.filter(({ state }) => state === "received" || state === "applied");
    const failures = refused.map(({ name, detail }) => `${name}: ${detail}`);
    outcome.value = [`${verb}: ${taken.length} of ${sent.length} taken`, ...failures].join("; ");
  });
}

/** @param {string} id @param {boolean} on */
function select(id, on) {
  const now = new Set(selected.peek());
  on ? now.add(id) : now.delete(id);
  selected.value = now;
}

/** The link that compares two chosen runs, the older one first. */
function compareLink() {
  const [b, a, ...others] = chosenRows.value.map((row) => encodeURIComponent(row.id));
  return a && !others.length ? h("a.button", { href: `/compare?a=${a}&b=${b}` }, "Compare") : null;
}

function liveNote() {
  const [all, live] = [chosenRows.value.length, liveChosen.value.length];
  if (all === live) return null;
  const ended = all - live;
  return h("span.small.soft", live ? `${ended} of them ${ended === 1 ? "has" : "have"} ended and ${
    ended === 1 ? "is" : "are"} left out` : all === 1 ? "This run has ended" : "All these runs have ended");
}

const bulk = () => (!selected.value.size && !outcome.value) ? null
  : h("div.bulk.row", { role: "region", "aria-label": "Selected runs" },
    selected.value.size ? [
      h("strong", `${selected.value.size} selected`), compareLink(),
      may("admin") ? ["pause", "resume", "abort"].map((verb) => button(capital(verb), () => actOnSelected(verb), {
        class: verb === "abort" ? "danger" : "", disabled: !liveChosen.value.length,
      })) : null,
      may("admin") ? liveNote() : null,
      button("Select none", () => (selected.value = new Set()), { class: "quiet" }),
    ] : null,
    outcome.value ? h("span.small", { role: "status" }, outcome.value) : null);

// The table
const hasTenants = computed(() => rows.value.some((row) => row.tenant));
const hasFolders = computed(() => new Set(rows.value.map((row) => row.folder)).size > 1);

/** @param {import("./ui.js").Signal<Row>} row */
function line(row) {
  const one = row.peek();
  const name = one.task || one.id;
  const kindName = { agent: "", goal: " goal", session: " chat" }[one.kind];
  const onchange = (/** @type {any} */ event) => select(one.id, event.target.checked);
  const checked = () => selected.value.has(one.id);
  const href = one.kind === "session" ? `/chat/${encodeURIComponent(one.id)}` : runPath(one.id);
  const mark = (/** @type {Row} */ { stuck, state }) =>
    stuck ? h("span.mark.tone-fail", { title: stuck }, glyph("failed"), "stuck") : stateMark(state);
  return h("tr",
    h("td.pick", h("input", { type: "checkbox", "aria-label": `Select ${name}`, checked, onchange })),
    h("td.state-cell", () => [mark(row.value),
      row.value.waiting ? h("span.small.tone-wait", ` ${words(row.value.waiting)}`) : null]),
    h("td.task", h("a", { href, title: `${one.task}\n${one.id}` }, name),
      () => row.value.stuck ? h("p.small.tone-fail", row.value.stuck) : null,
      () => row.value.dead_letters ? h("span.tag.tone-fail", `${row.value.dead_letters} dead letters`) : null,
      () => row.value.open_circuits.map((circuit) => h("span.tag.tone-limit", `${circuit} circuit open`))),
    h("td.agent", one.agent ?? DASH, h("span.faint", kindName)), h("td.num.started", time(one.started)),
    h("td.num.took", () => elapsed(row.value.started, row.value.ended)),
    h("td.num", { "data-unit": "iterations" }, () => count(row.value.iteration),
      () => (row.value.may_be_more ? h("abbr", { title: "may be more by now" }, "+") : null)),
    h("td.num", () => money(row.value.cost_usd)),
    () => (hasTenants.value ? h("td.wide", { title: one.tenant }, one.tenant ?? DASH) : null),
    () => (hasFolders.value ? h("td.wide", { title: one.folder }, one.folder?.split("/").pop() ?? DASH) : null));
}

const all = h("input", {
  type: "checkbox", "aria-label": "Select all shown",
  checked: () => rows.value.length > 0 && selected.value.size === rows.value.length,
  onchange: () => (selected.value = new Set(all.checked ? rows.peek().map((row) => row.id) : [])),
});
const table = h("table.runs", { onmouseleave: () => setTimeout(() => isPointedAt() || takeArrived(), 400) },
  h("thead",
    h("tr", h("th.pick", all), h("th", "State"), h("th", "Task"), h("th", "Agent"),
      ["Started", "Took", "Iterations", "Cost"].map((name) => h("th.num", name)),
      () => (hasTenants.value ? h("th.wide", "Tenant") : null),
      () => (hasFolders.value ? h("th.wide", "Folder") : null))),
  h("tbody", each(() => rows.value, (row) => row.id, line)));

function byId() {
  const input = h("input", { "aria-label": "Id of a run", placeholder: "agent-0198…", required: true });
  const open = () => void (location.href = runPath(input.value.trim()));
  return h("form.row", submits(open), input, h("button", "Open this run"));
}

const body = () => {
  if (list.data.value === null)
    return list.problem.value ? [
      failed(list.problem.value, () => void list.reload()),
      h("div.card.stack", h("p", "A run opens by its id even if the server lists none."), byId()),
    ] : skeleton(10);
  if (rows.value.length) return null;
  if (address.query.value)
    return empty("No run fits these filters", "Change or remove a filter.",
      button("Show all runs", () => address.open("")), byId());
  return empty("No runs yet",
    ["A run that starts appears here by itself. Start one here, or with ", h("code", 'orga run "…"'), "."],
    h("a.button.primary", { href: "/start" }, "Start a run"), byId());
};

const move = (/** @type {number} */ step) => moveFocus(table.querySelectorAll("tbody tr"), step, ".task a");
/** @type {() => HTMLElement|null|undefined} */
const focusedBox = () => document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]");
keys({
  j: ["next run", () => move(1)],
  k: ["previous run", () => move(-1)],
  x: ["select this run", () => focusedBox()?.click()],
  n: ["show the new runs", takeArrived],
});
effect(() => arrived.value.length && announce(`${arrived.value.length} new runs`));

setTitle("Runs");
show(
  h("div.page-head", h("h1", "Runs"), search, kind, h("a.button.primary.end", { href: "/start" }, "Start a run")),
  () => (counts.value ? stateChips() : null),
  more,
  views,
  bulk,
  () => (arrived.value.length ? button(`${arrived.value.length} new`, takeArrived, { class: "arrived" }) : null),
  h("div.scroll.card.flush", { hidden: () => !rows.value.length }, table),
  body,
  () => (next.value ? button("Older runs", () => list.more(`${address.query.peek() ? "&" : "?"}next=${
    encodeURIComponent(next.peek() ?? "")}`)) : null),
);
