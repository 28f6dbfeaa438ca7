// @ts-check
/**
 * The timeline of a run: one row per iteration, the newest last, and the calls in flight. Only rows near the view are
 * drawn.
 *
 * The address holds what is searched (`find`), filtered (`only`), open (`open`), and the row that was jumped to (`at`).
 */
import { address, runPath } from "../address.js";
import { resource } from "../api.js";
import { count, elapsed, words } from "../format.js";
import { WindowedList } from "./list.js";
import { eventsOf } from "./events.js";
import { recordDetails, recordRow } from "./record.js";
import { keys } from "../shell.js";
import { computed, each, effect, h, onChange, signal, stable, untracked } from "../ui.js";
import { button, empty, failed, skeleton } from "../widgets.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("./state.js").IterationRecord} IterationRecord */

/** A label, and filters of `GET /runs/{id}/search`. @type {Record<string, [string, Record<string, string>]>} */
const FILTERS = {
  people: ["what people did", { event: eventsOf("people") }],
  failed: ["failed calls", { outcome: "failed" }],
  denied: ["denied or held calls", { outcome: "denied,approval,deny" }],
  delegates: ["delegated runs", { event: "DelegationEnded" }],
  recovery: ["recovery and circuits", { event: eventsOf("recovery") }],
  critics: ["critics and scores", { event: `${eventsOf("critics")},StepEvaluated` }],
  plan: ["plan and steps", { event: eventsOf("plan") }],
  context: ["context and knowledge", { event: eventsOf("context") }],
};
const MOST_FOUND = 1000;

/** @param {Run} run @param {(record: IterationRecord) => import("../ui.js").Child} controls */
export function timelinePanel(run, controls) {
  const { records } = run;
  /** @type {Map<number, ReturnType<typeof recordDetails>>} */ const open = new Map();
  const only = computed(() => address.get("only"));
  const text = computed(() => address.get("find"));
  const search = computed(() => {
    const [, filter] = FILTERS[only.value] ?? ["", only.value ? { tool: only.value.slice("tool:".length) } : {}];
    const query = new URLSearchParams({ ...(text.value ? { text: text.value } : {}), ...filter });
    const path = /** @type {const} */ (`${runPath(run.id)}/search?${query}`);
    return query.size ? untracked(() => resource(path)) : null;
  });
  effect(() => { // an answer stops after a second, so read on until the end
    const { items = [], next = null } = search.value?.data.value ?? {};
    if (next && items.length < MOST_FOUND) void search.peek()?.more(`&next=${encodeURIComponent(next)}`);
  });
  onChange(() => records.range.value[1], () => void search.peek()?.reload());
  /** The texts that were found, by iteration. */
  const found = computed(() => {
    const items = search.value?.data.value?.items;
    if (!items) return null;
    /** @type {Map<number, string[]>} */ const all = new Map();
    for (const { iteration, where, excerpt } of items.toReversed()) {
      const excerpts = text.peek() ? [...(all.get(iteration) ?? []), `${words(where)}: ${excerpt}`] : [];
      all.set(iteration, excerpts.slice(0, 3));
    }
    return all;
  });
  const following = signal(!address.get("at"));

  const body = h("ol.its");
  const live = h("div.in-flight",
    each(() => run.live.value, (one) => `${one.run} ${one.activity_id}`, (one) => inFlight(run, one)));
  const scroller = h("div.timeline", { tabindex: 0, role: "region", "aria-label": "Timeline" }, body, live);

  /** @param {number} number */
  const openRow = (number) => open.set(number, untracked(() => recordDetails(run.id, number, controls)));
  /** @param {number} number */
  const toggle = (number) => {
    open.get(number)?.end();
    if (!open.delete(number)) openRow(number);
    list.stopFollowing();
    address.set({ open: [...open.keys()].join(",") });
    list.refresh(number);
  };
  for (const number of address.get("open").split(",")) if (number) openRow(Number(number)); // as before a reload
  const list = new WindowedList({
    scroller, body, after: live, estimate: 84, follow: following.peek(),
    onFollow: (is) => (following.value = is),
    onWindow: (first, last) => {
      for (const key of list.keys.slice(first, last + 1)) void records.need(Number(key), Number(key));
    },
    render: (key) => {
      const number = Number(key);
      const record = records.byNumber.get(number);
      if (!record) void records.need(number, number);
      if (!record) return h("li.it.is-missing", h("span.it-number", number), skeleton(1));
      const details = open.get(number)?.element;
      return recordRow(record, {
        isOpen: Boolean(details), toggle: () => toggle(number), details, acts: records.acts,
        excerpts: found.peek()?.get(number),
      });
    },
  });

  const shown = stable(() => {
    const [first, last] = records.range.value;
    if (search.value) return [...(found.value?.keys() ?? [])].sort((a, b) => a - b);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
  effect(() => list.setKeys(shown.value));
  onChange(() => found.value, () => list.refreshAll());
  records.watchers.add((number) => {
    list.refresh(number);
    open.get(number)?.reload();
  });
  /** @param {number} number */
  async function jump(number) {
    const [first, last] = records.range.peek();
    if (last < first) return;
    const wanted = Math.min(last, Math.max(first, number));
    await records.need(wanted - 5, wanted + 15);
    address.set({ find: "", only: "", at: String(wanted) });
    const row = list.scrollTo(wanted);
    /** @type {HTMLElement|null|undefined} */ (row?.querySelector(".it-number"))?.focus({ preventScroll: true });
  }
  effect(() => void (following.value && address.set({ at: "" })));
  const at = Number(address.get("at"));
  const stopWaiting = effect(() => {
    if (!records.isLoaded.value) return;
    if (at) untracked(() => void jump(at));
    queueMicrotask(() => stopWaiting());
  });

  const input = h("input", {
    type: "search", placeholder: "Search all texts", "aria-label": "Search all texts", value: text,
    onchange: () => address.set({ find: input.value.trim() }, true),
  });
  const tools = stable(() => {
    void records.version.value;
    return [...new Set(records.loaded().flatMap((record) => record.calls.map((call) => call.tool)))].sort();
  });
  const filter = h("select",
    { "aria-label": "Show only", value: only, onchange: () => address.set({ only: filter.value }, true) },
    h("option", { value: "" }, "Everything"),
    Object.entries(FILTERS).map(([value, [label]]) => h("option", { value }, label)), () => tools.value.map((tool) => {
      const value = `tool:${tool}`;
      return h("option", { value, selected: only.peek() === value }, `calls of ${tool}`);
    }));
  const number = h("input.jump", {
    type: "number", min: 0, placeholder: "Iteration", "aria-label": "Jump to iteration",
    onchange: () => number.value && void jump(Number(number.value)),
  });
  keys({ e: ["newest iteration", () => list.toEnd()], "#": ["jump to an iteration", () => number.focus()] });

  const note = () => {
    if (!search.value) return "";
    if (search.value.problem.value) return h("span.error", search.value.problem.value.detail);
    if (!found.value) return "searching…";
    const number = `${count(found.value.size)}${search.value.data.value?.next ? " or more" : ""} iterations`;
    const showAll = () => address.set({ find: "", only: "" }, true);
    return [number, text.value ? ` have “${text.value}” ` : " ", button("Show all", showAll, { class: "small" })];
  };
  const element = h("div.timeline-panel", h("h2.unseen", "Timeline"),
    h("div.toolbar.row", input, filter, number, h("span.soft.small", { role: "status" }, note)),
    () => {
      if (!records.isLoaded.value)
        return records.problem.value ? failed(records.problem.value, () => void records.loadNewest()) : null;
      const [first, last] = records.range.value;
      return last < first && !run.live.value.length
        ? empty("No iteration yet", "Each step of reasoning is shown here as a row, once the run is prepared.") : null;
    },
    scroller,
    button("↓ Newest", () => list.toEnd(), { class: "newest", hidden: () => following.value }));
  return { element, jump };
}

/** @typedef {import("../ui.js").Signal<import("./state.js").Live>} LiveCall */

/** A call in flight, with its text so far. @param {Run} run @param {LiveCall} one */
export function inFlight(run, one) {
  const { name, run: owner } = one.peek();
  const state = () => {
    const { retry_at, since } = one.value;
    if (retry_at) return ["next attempt in ", elapsed(new Date().toISOString(), retry_at)];
    return since ? elapsed(since, null) : "waits for a worker";
  };
  return h("section.flight", { "aria-label": `In flight: ${name}` },
    h("header", h("span.pulse", { "aria-hidden": "true" }), h("b", words(name.replace("goal_", ""))),
      owner === run.id ? null : h("a", { href: runPath(owner) }, owner),
      () => (one.value.attempt > 1 ? h("span.tag", `attempt ${one.value.attempt}`) : null),
      h("span.faint", state)),
    () => (one.value.failure ? h("p.bad.small", `the last attempt failed: ${one.value.failure}`) : null),
    h("details.thinking", { hidden: () => !one.value.thinking }, h("summary", "Thinking"),
      h("p.plain", () => tail(one.value.thinking, one.value.thinking_length))),
    h("p.plain.flight-text", { hidden: () => !one.value.text }, () => tail(one.value.text, one.value.text_length)));
}

/** @param {string} text @param {number} length */
const tail = (text, length) => (length > text.length ? `…${text}` : text);
