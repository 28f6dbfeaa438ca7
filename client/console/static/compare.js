// @ts-check
/** Two runs side by side: aligned from their common beginning, with what differs in each iteration, and their results. */
import { get, resource } from "./api.js";
import { capital, count, duration, money, time, words } from "./format.js";
import { markdown } from "./markdown.js";
import { stateMark } from "./marks.js";
import { callLine } from "./run/record.js";
import { address, runPath } from "./run/state.js";
import { empty, failed, setTitle, show, skeleton, view } from "./shell.js";
import { computed, h, mount, signal, untracked } from "./ui.js";

/** @typedef {import("./run/state.js").Record_} Record_ */
/** @typedef {{number: number, a: Record_|null, b: Record_|null, differs: string[]}} Row */

const ids = { a: address.get("a"), b: address.get("b") };
const SIDES = /** @type {const} */ (["a", "b"]);

/** The choice of two runs, by id or from the newest ones. */
function choose() {
  const recent = signal(/** @type {any[]} */ ([]));
  get("/runs?limit=30").then(({ items }) => (recent.value = items), () => {});
  const field = (/** @type {"a"|"b"} */ side) => h("label.stack.grow", `Run ${side.toUpperCase()}`, h("input", { name: side, value: ids[side], list: "recent", required: true, placeholder: "its id" }));
  return [
    h("h1", "Compare two runs"),
    h("form.card.stack", { action: "/compare", method: "get" },
      h("p.soft", "Side by side from their common beginning: replies, calls, verdicts, scores, cost and time. A fork and its origin show what another model, task or policy changed."),
      h("div.row", field("a"), field("b")), h("p", h("button", { type: "submit", class: "primary" }, "Compare")),
      h("datalist", { id: "recent" }, () => recent.value.map((run) => h("option", { value: run.id }, run.task?.slice(0, 80))))),
  ];
}

/** @param {any} run @param {string} side */
const head = (run, side) =>
  h("section", { class: `card stack side-${side}`, "aria-label": `Run ${side.toUpperCase()}` },
    h("h2", h("span.side", side.toUpperCase()), h("a", { href: runPath(run.id) }, run.task || run.id)),
    h("p.row", stateMark(run.state), run.detail ? h("span.soft", run.detail) : null),
    h("p.row.small.soft", run.agent ? h("span", "agent ", h("b", run.agent)) : null, run.model_in_effect ? h("span", "model ", h("b", run.model_in_effect)) : null, h("span", "began ", time(run.started)), h("code.faint", run.id)));

/** @param {any} run */
const seconds = (run) => run.result?.duration_s ?? (run.ended ? (Date.parse(run.ended) - Date.parse(run.started)) / 1000 : null);

/** @param {any} a @param {any} b */
function totals(a, b) {
  /** @type {[string, (run: any) => number|null|undefined, (value: number|null|undefined) => string][]} */
  const lines = [
    ["iterations", (run) => run.iteration, count], ["tokens", (run) => run.usage?.total_tokens, count], ["cost", (run) => run.usage?.cost_usd ?? run.cost_usd, money], ["time", seconds, duration],
    ["calls run", (run) => run.result?.tool_calls?.run, count], ["calls denied", (run) => run.result?.tool_calls?.denied, count], ["calls failed", (run) => run.result?.tool_calls?.failed, count], ["confidence", (run) => run.result?.confidence, count],
  ];
  return h("div.scroll.card.totals", { tabindex: 0, role: "region", "aria-label": "Totals" }, h("table", h("thead", h("tr", h("th", h("span.unseen", "What")), h("th.num", "A"), h("th.num", "B"), h("th.num", "change"))),
    h("tbody", lines.map(([name, read, shown]) => {
      const [x, y] = [read(a), read(b)];
      if ((x ?? null) === null && (y ?? null) === null) return null;
      const change = x && y !== null && y !== undefined ? (y - x) / x : null;
      return h("tr", h("th", { scope: "row" }, name), h("td.num", shown(x)), h("td.num", shown(y)), h("td.num", change === null || Math.abs(change) < 0.005 ? (x === y ? "the same" : "") : `${change > 0 ? "+" : "−"}${Math.abs(Math.round(change * 100))} %`));
    }))));
}

/** @param {Record_|null} record @param {Row} row @param {"a"|"b"} side */
function cell(record, row, side) {
  if (!record) return h("div", { class: `cell is-absent side-${side}` }, h("span.faint", "not reached"));
  const is = (/** @type {string} */ what) => (row.differs.includes(what) ? " differs" : "");
  const { usage } = record;
  const took = record.started && record.ended ? duration((Date.parse(record.ended) - Date.parse(record.started)) / 1000) : "";
  return h("div", { class: `cell side-${side}` },
    record.reply?.head ? h("p", { class: `cell-reply${is("reply")}` }, record.reply.head.slice(0, 600)) : null,
    record.calls.length ? h("ul", { class: `calls${is("calls")}${is("verdicts")}` }, record.calls.map(callLine)) : null,
    h("p.small.faint.row", h("a", { href: `${runPath(ids[side])}?at=${record.number}&open=${record.number}`, "aria-label": `Iteration ${record.number} of run ${side.toUpperCase()}` }, `iteration ${record.number}`),
      record.scores.length ? h("span", { class: is("scores") }, `score ${record.scores.join(", ")}`) : null,
      h("span", { class: is("cost") }, `${count((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0))} tok${usage?.cost_usd ? ` · ${money(usage.cost_usd)}` : ""}`), took ? h("span", { class: is("time") }, took) : null));
}

/** @param {Row} row */
const compared = (row) =>
  h("li.pair", row.differs.length ? h("p.pair-differs", h("span.unseen", "differs in "), row.differs.map((what) => h("span.tag", words(what)))) : null, SIDES.map((side) => cell(row[side], row, side)));

/** The iterations that both runs have, as run A has them. @param {number} last */
function commonPart(last) {
  const body = h("div");
  const ontoggle = () => body.firstChild || mount(body, () => view(resource(`${runPath(ids.a)}/timeline?before=${last + 1}&limit=50`), ({ items }) =>
    h("ol.pairs", items.filter((/** @type {Record_} */ record) => record.number > 0).map((/** @type {Record_} */ record) => h("li.pair.is-common", cell(record, { number: record.number, a: record, b: null, differs: [] }, "a")))), 3));
  return h("details.card", { ontoggle }, h("summary", `${count(last)} in common`), body);
}

function comparison() {
  const head_ = signal(/** @type {any} */ (null));
  const rows = signal(/** @type {Row[]} */ ([]));
  const next = signal(/** @type {string|null} */ (null));
  const problem = signal(/** @type {any} */ (null));
  const onlyDifferent = signal(address.get("only") === "differences");
  const load = async () => {
    try {
      const page = await get(`/compare${location.search.replace(/&?only=[^&]*/, "")}${next.peek() ? `&next=${encodeURIComponent(next.peek() ?? "")}` : ""}`);
      rows.value = [...rows.peek(), ...page.rows];
      next.value = page.next;
      head_.value = page;
      problem.value = null;
    } catch (error) {
      problem.value = error;
    }
  };
  void load();
  const later = computed(() => rows.value.filter((row) => !onlyDifferent.value || row.differs.length || !row.a || !row.b));
  const known = computed(() => head_.value !== null);
  const page = () => {
    const { a, b } = head_.value;
    return [
      h("div.page-head", h("h1", "Compare"), h("a.button.end", { href: `/compare?a=${encodeURIComponent(ids.b)}&b=${encodeURIComponent(ids.a)}` }, "Swap"), h("a.button", { href: "/compare" }, "Other runs")),
      h("div.pair.heads", head(a, "a"), head(b, "b")), totals(a, b),
      h("section.stack",
        h("div.page-head", h("h2", "Iterations"),
          h("button", { type: "button", class: "chip", "aria-pressed": () => String(onlyDifferent.value), onclick: () => ((onlyDifferent.value = !onlyDifferent.peek()), address.set({ only: onlyDifferent.value ? "differences" : "" })) }, "Only what differs")),
        head_.value.common ? commonPart(head_.value.common) : h("p.soft", "These runs have no iteration in common. They are aligned by number."),
        () => (later.value.length ? h("ol.pairs", later.value.map(compared)) : h("p.soft", "No further iteration differs.")),
        () => (next.value ? h("button", { type: "button", onclick: () => void load() }, "Show more iterations") : null)),
      a.result || b.result ? h("section.stack", h("h2", "Results"), h("div.pair", SIDES.map((side) => {
        const { result } = head_.value[side];
        return h("article", { class: `card stack side-${side}` }, h("p.row", h("span.side", side.toUpperCase()), result ? stateMark(result.termination?.reason ?? "completed") : h("span.soft", "no result yet"), result?.confidence === undefined ? null : h("span.small.soft", `confidence ${Math.round(result.confidence * 100)} %`)),
          result?.output ? markdown(() => result.output) : null, result?.data ? h("pre", { tabindex: 0 }, JSON.stringify(result.data, null, 2)) : null);
      }))) : empty("No result yet", `${capital("the answers")} stand here side by side when a run has ended.`),
    ];
  };
  return () => (known.value ? untracked(page) : problem.value ? [h("h1", "Compare"), failed(problem.value, () => void load())] : [h("h1", "Compare"), skeleton(8)]);
}

setTitle("Compare");
show(ids.a && ids.b ? comparison() : choose());
