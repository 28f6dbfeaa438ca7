// @ts-check
/** What the model sees (its memory, its conversation, what was left out and recalled), and the result of a run. */
import { get, resource } from "../api.js";
import { count, duration, money, time, words } from "../format.js";
import { markdown } from "../markdown.js";
import { glyph, stateMark } from "../marks.js";
import { runPath, stable } from "./state.js";
import { copy, empty, failed, view } from "../shell.js";
import { computed, h, signal } from "../ui.js";

/** @typedef {import("./state.js").Run} Run */

const PAGE = 40;

/** @param {Run} run @param {(number: number) => void} jump */
export function seesPanel(run, jump) {
  return h("div.sees.stack", memoryPart(run, jump), recalledPart(run, jump), conversationPart(run));
}

/** @param {Run} run @param {(number: number) => void} jump */
function memoryPart(run, jump) {
  const memory = resource(`${runPath(run.id)}/memory`);
  return h("section", h("h2", "Working memory"), view(memory, ({ items }) => {
    const newest = items.at(-1);
    if (!newest) return h("p.faint", "This run keeps no working memory: its conversation is all it has.");
    return [
      h("pre", { tabindex: 0 }, newest.memory || "empty"),
      h("details", h("summary", `Changes (${items.length})`), h("ol.versions", [...items].reverse().map((change) =>
        h("li", h("p.row", h("button", { type: "button", class: "quiet small", onclick: () => jump(change.iteration) }, `iteration ${change.iteration}`), h("span.faint.small", time(change.at))),
          h("ul.changes", (change.removed ?? []).map((/** @type {string} */ line) => h("li.is-dropped", h("del", line))), (change.added ?? []).map((/** @type {string} */ line) => h("li.is-added", h("ins", line)))))))),
    ];
  }, 2));
}

/** @param {Run} run @param {(number: number) => void} jump */
function recalledPart(run, jump) {
  const recalled = computed(() => {
    void run.records.version.value;
    return JSON.stringify(run.records.loaded().flatMap((record) => record.events.filter((event) => event.event === "KnowledgeRecalled" && event.data.items?.length).map((event) => ({ number: record.number, ...event.data }))).slice(-10));
  });
  return () => {
    const found = JSON.parse(recalled.value);
    return found.length ? h("section", h("h2", "Recalled knowledge"), h("ul.versions", found.map((/** @type {any} */ one) => h("li",
      h("p.row", h("button", { type: "button", class: "quiet small", onclick: () => jump(one.number) }, `iteration ${one.number}`), h("span.soft", (one.terms ?? []).join(", "))),
      h("ul.plain-list", one.items.map((/** @type {any} */ item) => h("li", h("code", item.id), h("small", `score ${count(item.score)}${item.tainted ? ", from an untrusted source" : ""}`)))))))) : null;
  };
}

/** @param {Run} run */
function conversationPart(run) {
  const items = signal(/** @type {any[]} */ ([]));
  const rest = signal({ total: 0, left_out: /** @type {any[]} */ ([]), isLoaded: false });
  const problem = signal(/** @type {any} */ (null));
  const load = async (isFresh = false) => {
    try {
      const page = await get(`${runPath(run.id)}/conversation?offset=${isFresh ? 0 : items.peek().length}&limit=${PAGE}`);
      items.value = isFresh ? page.items : [...items.peek(), ...page.items];
      rest.value = { total: page.total, left_out: page.left_out ?? [], isLoaded: true };
      problem.value = null;
    } catch (error) {
      problem.value = error;
    }
  };
  void load();
  return h("section", h("h2.row", "Conversation as the model sees it", h("button", { type: "button", class: "quiet small", onclick: () => void load(true) }, "Read it again")),
    () => rest.value.left_out.length ? h("ul.left-out", rest.value.left_out.map((one) => h("li", glyph("stuck"), h("p", h("b", words(one.how)), one.from === null || one.from === undefined ? "" : ` messages ${one.from} to ${one.to}`, one.why ? `: ${one.why}` : "", " ", h("small", time(one.at)))))) : null,
    () => problem.value ? failed(problem.value, () => void load(true)) : rest.value.isLoaded && !items.value.length ? empty("No message yet", "The model has not been asked anything so far.") : null,
    h("ol.messages", () => items.value.map(message)),
    () => items.value.length < rest.value.total ? h("button", { type: "button", onclick: () => void load() }, `Show ${Math.min(PAGE, rest.value.total - items.value.length)} more of ${count(rest.value.total)}`) : null);
}

/** @param {any} one */
const message = (one) => h("li", { class: `message is-${one.role}` },
  h("p.message-role", one.tool ? h("code", one.tool) : one.role, one.at ? time(one.at) : null),
  one.text ? h("p.plain", one.text) : null,
  (one.calls ?? []).map((/** @type {any} */ call) => h("p.mono.small", h("b", call.name), ` ${JSON.stringify(call.arguments)}`)));

/** @param {Run} run */
export function resultPanel(run) {
  const result = stable(run, ({ result }) => result);
  const state = stable(run, ({ state, detail, ended }) => ({ state, detail, ended }));
  return h("div.result.stack", () => {
    const found = result();
    const { state: ending, detail, ended } = state();
    if (!found) return ended ? [stateMark(ending), empty("This run left no result", detail || "It ended before it could write one. Its timeline shows how far it got.")]
      : empty("No result yet", "The answer stands here when the run has ended, with its data, its sources and how sure it is.");
    const save = (/** @type {string} */ name, /** @type {string} */ type, /** @type {string} */ text) => {
      const link = h("a", { download: name });
      link.href = URL.createObjectURL(new Blob([text], { type }));
      link.click();
      URL.revokeObjectURL(link.href);
    };
    return [
      h("div.row", stateMark(found.termination?.reason ?? ending), found.termination?.detail ? h("span.soft", found.termination.detail) : null,
        h("span.grow"), copy(found.output ?? "", "Copy the answer"),
        h("button", { type: "button", class: "small", onclick: () => save(`${run.id}.md`, "text/markdown", found.output ?? "") }, "Download Markdown"),
        h("button", { type: "button", class: "small", onclick: () => save(`${run.id}.json`, "application/json", JSON.stringify(found, null, 2)) }, "Download JSON")),
      h("h2", "Answer"),
      found.output ? h("article.card.answer", markdown(() => found.output)) : h("p.faint", "The run ended without an answer."),
      found.data === null || found.data === undefined ? null : h("section", h("h2", "Data"), h("pre", { tabindex: 0 }, JSON.stringify(found.data, null, 2))),
      h("dl.facts.card",
        found.confidence === undefined || found.confidence === null ? null : [h("dt", "confidence"), h("dd", `${Math.round(found.confidence * 100)} %`)],
        found.sources?.length ? [h("dt", "sources"), h("dd", h("ul.plain-list", found.sources.map((/** @type {string} */ source) => h("li", h("code", source)))))] : null,
        found.deliveries?.length ? [h("dt", "deliveries"), h("dd", found.deliveries.map((/** @type {any} */ one) => h("p.row", stateMark(one.status), `${one.name} (${one.kind})`, one.error ? h("span.bad", one.error) : null)))] : null,
        h("dt", "iterations"), h("dd", count(found.iterations)), found.rounds === undefined ? null : [h("dt", "rounds"), h("dd", found.rounds)],
        found.turns === undefined ? null : [h("dt", "turns"), h("dd", found.turns)],
        h("dt", "time"), h("dd", duration(found.duration_s)), h("dt", "tokens"), h("dd", count(found.usage?.total_tokens)), h("dt", "cost"), h("dd", money(found.usage?.cost_usd)),
        h("dt", "calls"), h("dd", Object.entries(found.tool_calls ?? {}).filter(([, n]) => n).map(([name, n]) => `${n} ${words(name)}`).join(", ") || "none")),
    ];
  });
}

