// @ts-check
/** Two runs side by side, aligned from their common beginning: what differs in each iteration, and their results. */
import { address, runPath } from "./address.js";
import { resource } from "./api.js";
import { DASH, count, duration, money, time, took, words } from "./format.js";
import { markdown } from "./markdown.js";
import { stateMark } from "./marks.js";
import { eventLine } from "./run/events.js";
import { callLine } from "./run/record.js";
import { setTitle, show } from "./shell.js";
import { h } from "./ui.js";
import { asJson, button, chip, empty, labelled, pageOf, table, unfold, view } from "./widgets.js";

/** @typedef {import("orga-api").ComparedIteration} Row */
/** @typedef {import("orga-api").ComparedRun} Compared */
/** @typedef {import("orga-api").Answer<"/compare">} Comparison */
/** @typedef {"a"|"b"} Side */

const ids = { a: address.get("a"), b: address.get("b") };
const GUIDANCE = new Set(["steer", "add_context", "override_step"]);
const SIDES = /** @type {const} */ (["a", "b"]);

/** The choice of two runs, by id or from the newest ones. */
function choose() {
  const recent = resource("/runs?limit=30").data;
  const field = (/** @type {Side} */ side) => h("div.grow", labelled(`Run ${side.toUpperCase()}`,
    h("input", { name: side, value: ids[side], list: "recent", required: true, placeholder: "its id" })));
  return [
    h("h1", "Compare two runs"),
    h("form.card.stack", { action: "/compare", method: "get" },
      h("p.soft",
        "Side by side from their common beginning: replies, calls, verdicts, scores, cost and time. A fork and its " +
          "origin show what another model, task or policy changed."),
      h("div.row", field("a"), field("b")), h("p", h("button.primary", "Compare")),
      h("datalist", { id: "recent" },
        () => recent.value?.items.map(({ id, task }) => h("option", { value: id }, task.slice(0, 80))))),
  ];
}

/** @param {Side} side */
const badge = (side) => h("span.side", side.toUpperCase());

/** @param {Compared} run @param {Side} side */
function head({ id, task, state, agent, started }, side) {
  return h(`section.card.stack.side-${side}`, { "aria-label": `Run ${side.toUpperCase()}` },
    h("h2", badge(side), h("a", { href: runPath(id) }, task || id)),
    h("p.row", stateMark(state)),
    h("p.row.small.soft", agent ? h("span", "agent ", h("b", agent)) : null, h("span", "began ", time(started)),
      h("code.faint", id)));
}

/** @typedef {[name: string, read: (run: any) => number|null|undefined, shown: (value: any) => string]} Total */
/** @type {Total[]} */
const TOTALS = [
  ["iterations", (run) => run.iteration, count],
  ["tokens", (run) => run.result?.usage?.total_tokens, count],
  ["cost", (run) => run.result?.usage?.cost_usd ?? run.cost_usd, money],
  ["time", ({ result, started, ended }) =>
    result?.duration_s ?? (ended ? (Date.parse(ended) - Date.parse(started)) / 1000 : null), duration],
  ["calls run", (run) => run.result?.tool_calls?.run, count],
  ["calls denied", (run) => run.result?.tool_calls?.denied, count],
  ["calls failed", (run) => run.result?.tool_calls?.failed, count],
  ["confidence", (run) => run.result?.confidence, count],
];

/** @param {number|null|undefined} before @param {number|null|undefined} after */
function change(before, after) {
  if (before === after) return "the same";
  if (!before || typeof after !== "number") return "";
  const share = Math.round(((after - before) / before) * 100);
  return share ? `${share > 0 ? "+" : "−"}${Math.abs(share)} %` : "";
}

/** @param {Comparison} data */
const totals = ({ a, b }) => table("Totals", [
  [h("span.unseen", "What"), ([name]) => name],
  ["A", ([, read, shown]) => shown(read(a)), "num"],
  ["B", ([, read, shown]) => shown(read(b)), "num"],
  ["change", ([, read]) => change(read(a), read(b)), "num"],
], TOTALS.filter(([, read]) => typeof (read(a) ?? read(b)) === "number"), { class: "totals" });

/**
 * The answers and the guidance of people.
 * @param {import("orga-api").IterationRecord} record @param {(name: string) => string} marked
 */
const people = ({ events }, marked) => events.flatMap((event) => {
  const name = event.event === "QuestionAnswered" ? "answers"
    : event.event === "InterventionReceived" && GUIDANCE.has(event.data.kind) ? "guidance" : "";
  return name ? [h("p.small", { class: marked(name) }, eventLine(event, events).text)] : [];
});

/** @param {import("orga-api").IterationRecord|null} record @param {readonly string[]} differences @param {Side} side */
function cell(record, differences, side) {
  if (!record) return h(`div.cell.is-absent.side-${side}`, h("span.faint", "not reached"));
  const { number, reply, calls, scores, usage, started, ended } = record;
  const marked = (/** @type {string[]} */ ...names) =>
    names.some((name) => differences.includes(name)) ? "differs" : "";
  const tokens = `${count((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0))} tok`;
  return h(`div.cell.side-${side}`,
    people(record, marked),
    reply?.head ? h("p.cell-reply", { class: marked("reply") }, reply.head.slice(0, 600)) : null,
    calls.length ? h("ul.calls", { class: marked("calls", "verdicts") }, calls.map(callLine)) : null,
    h("p.small.faint.row",
      h("a", {
        href: `${runPath(ids[side])}?at=${number}&open=${number}`,
        "aria-label": `Iteration ${number} of run ${side.toUpperCase()}`,
      }, `iteration ${number}`),
      scores.length ? h("span", { class: marked("scores") }, `score ${scores.join(", ")}`) : null,
      h("span", { class: marked("cost") }, usage?.cost_usd ? `${tokens} · ${money(usage.cost_usd)}` : tokens),
      h("span", { class: marked("time") }, took(started, ended))));
}

/** @param {Row} row */
const compared = (row) => h("li.pair",
  row.differs.length
    ? h("p.pair-differs", h("span.unseen", "differs in "), row.differs.map((name) => h("span.tag", words(name))))
    : null,
  SIDES.map((side) => cell(row[side], row.differs, side)));

/** The common iterations, as run A shows them. @param {number} last */
const commonPart = (last) => unfold(`${count(last)} in common`, () =>
  view(resource(`${runPath(ids.a)}/timeline?before=${last + 1}&limit=50`), ({ items }) => h("ol.pairs",
    items.filter(({ number }) => number > 0).map((record) => h("li.pair.is-common", cell(record, [], "a")))), 3),
{ class: "card" });

/** @param {Comparison} data */
function results(data) {
  if (!data.a.result && !data.b.result)
    return empty("No result yet", "The answers are shown here side by side when a run has ended.");
  return h("section.stack", h("h2", "Results"), h("div.pair", SIDES.map((side) => {
    const result = /** @type {any} */ (data[side].result);
    if (!result) return h(`article.card.stack.side-${side}`, h("p.row", badge(side), h("span.soft", "no result yet")));
    const { output, data: values, termination, confidence } = result;
    return h(`article.card.stack.side-${side}`,
      h("p.row", badge(side), stateMark(termination?.reason ?? "completed"),
        typeof confidence === "number" ? h("span.small.soft", `confidence ${Math.round(confidence * 100)} %`) : null),
      output ? markdown(() => output) : null, values ? asJson(values) : null);
  })));
}

/** @param {any} value @param {string} [path] @returns {[string, string][]} */
const leaves = (value, path = "") => value && typeof value === "object" && !Array.isArray(value)
  ? Object.entries(value).flatMap(([key, one]) => leaves(one, path ? `${path}.${key}` : key))
  : [[path, typeof value === "string" ? value : JSON.stringify(value)]];

/** The table of the input keys that differ. */
function inputs() {
  const [a, b] = SIDES.map((side) => resource(/** @type {const} */ (`${runPath(ids[side])}/input`)).data);
  const begun = SIDES.map((side) => resource(/** @type {const} */ (`${runPath(ids[side])}/timeline?around=0&limit=1`)));
  const version = (/** @type {number} */ at) => begun[at]?.data.value?.items.flatMap(({ events }) => events)
    .find(({ event }) => event === "Prepared")?.data.settings_version;
  return () => {
    const [left, right] = [a?.value, b?.value].map((one, at) => one && new Map(
      [...leaves(one.input), ["settings version", version(at) ? String(version(at)) : undefined]]));
    if (!left || !right) return null;
    const keys = [...new Set([...left.keys(), ...right.keys()])].filter((key) => left.get(key) !== right.get(key));
    return keys.length ? table("Inputs", [
      ["Input", (key) => words(key)], ["A", (key) => left.get(key)], ["B", (key) => right.get(key)],
    ], keys) : h("p.soft", "Both runs have the same input.");
  };
}

function comparison() {
  const source = resource(`/compare?a=${encodeURIComponent(ids.a)}&b=${encodeURIComponent(ids.b)}`);
  const isOnly = () => address.get("only") === "differences";
  const rows = () => source.data.value?.rows ?? [];
  const later = () => rows().filter(({ differs, a, b }) => !isOnly() || differs.length || !a || !b);
  const next = () => encodeURIComponent(source.data.value?.next ?? "");
  const swapped = `/compare?a=${encodeURIComponent(ids.b)}&b=${encodeURIComponent(ids.a)}`;
  return pageOf("Compare", source, (first) => [
    h("div.page-head", h("h1", "Compare"), h("a.button.end", { href: swapped }, "Swap"),
      h("a.button", { href: "/compare" }, "Other runs")),
    h("div.pair.heads", SIDES.map((side) => head(first[side], side))),
    first.fork ? h("p", `${first.fork === "a" ? "A is a fork of B" : "B is a fork of A"} at iteration ${first.common}.`)
      : null,
    totals(first), inputs(),
    h("section.stack",
      h("div.page-head", h("h2", "Iterations"),
        chip("Only what differs", isOnly, () => address.set({ only: isOnly() ? "" : "differences" }))),
      first.common ? commonPart(first.common)
        : h("p.soft", "These runs have no iteration in common. They are aligned by number."),
      () => (later().length ? h("ol.pairs", later().map(compared)) : h("p.soft", "No further iteration differs.")),
      () => (next() ? button("Show more iterations", () => source.more(`&next=${next()}`, "rows")) : null)),
    results(first),
  ]);
}

setTitle("Compare");
show(ids.a && ids.b ? comparison() : choose());
