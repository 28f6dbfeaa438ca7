// @ts-check
/** The head of a run, its meters, its troubles, and what people did to it. */
import { count, duration, elapsed, money, time, words } from "../format.js";
import { glyph, stateMark } from "../marks.js";
import { actCourse } from "./events.js";
import { controlOf } from "./controls.js";
import { runPath, stable } from "./state.js";
import { copy } from "../shell.js";
import { computed, h } from "../ui.js";

/** @typedef {import("./state.js").Run} Run */

/** @param {Run} run @param {import("../ui.js").Child} controls */
export function head(run, controls) {
  const facts = stable(run, ({ state, reason, detail, stuck, paused, ended }) => ({ state: paused && !ended ? "paused" : state, detail: ended ? detail : null, reason, stuck }));
  const links = stable(run, ({ links }) => links);
  const about = stable(run, ({ agent, model_in_effect, started_by, kind, tenant, folder }) => ({ agent, model_in_effect, started_by, kind, tenant, folder }));
  const task = stable(run, ({ task }) => task);
  return h("header.run-head",
    h("div.run-title",
      h("h1", () => task() || "A run without a task"),
      h("p.run-state", { role: "status" }, () => {
        const { state, detail, stuck } = facts();
        return [stateMark(stuck ? "stuck" : state), detail ? h("span.soft", detail) : null];
      })),
    h("div.run-controls.row", controls),
    h("p.run-about",
      () => {
        const { agent, model_in_effect, started_by, kind, tenant, folder } = about();
        return [kind === "agent" ? null : h("span.tag", kind), agent ? h("span", "agent ", h("b", agent)) : null, model_in_effect ? h("span", "model ", h("b", model_in_effect)) : null,
          started_by ? h("span", "by ", h("b", started_by)) : null, tenant ? h("span", "tenant ", h("b", tenant)) : null, folder ? h("span.faint", folder) : null];
      },
      h("span", "began ", () => time(run.snapshot.value.started)),
      h("span", () => [run.snapshot.value.ended ? "took " : "for ", elapsed(run.snapshot.value.started, run.snapshot.value.ended)]),
      () => {
        const { parent, origin, temporal_ui } = links();
        return [parent ? h("a", { href: runPath(parent) }, "parent") : null, origin ? h("a", { href: runPath(origin) }, "forked from") : null, origin ? h("a", { href: `/compare?a=${encodeURIComponent(origin)}&b=${encodeURIComponent(run.id)}` }, "compare") : null,
          temporal_ui ? h("a", { href: temporal_ui, target: "_blank", rel: "noopener noreferrer" }, "Temporal") : null];
      },
      h("span.run-id.mono", run.id, copy(run.id), copy(`${location.origin}${runPath(run.id)}`, "Copy link"))));
}

/** What keeps the run from going on, each with its remedy. @param {Run} run */
export function troubles(run) {
  const found = stable(run, ({ stuck, worker, ended, worker_command }) => (ended ? null : { stuck, present: worker?.present ?? true, command: worker?.command || worker_command }));
  return () => {
    const trouble = found();
    if (!trouble) return null;
    const command = () => h("p.row", h("code", trouble.command), copy(trouble.command));
    if (trouble.stuck) return h("section.trouble", { role: "alert" }, h("h2", glyph("failed"), "No worker can continue this run"), h("p", trouble.stuck));
    if (!trouble.present) return h("section.trouble", { role: "alert" }, h("h2", glyph("stuck"), "No worker polls for this run"), h("p", "Nothing is lost: it goes on when one does. What you decide now counts then. Start one:"), command());
    return null;
  };
}

/** @typedef {{name: string, used: number, limit: number|null, unit: string}} Budget */

const LABELS = /** @type {Record<string, string>} */ ({ max_iterations: "iterations", max_total_tokens: "tokens", max_cost_usd: "cost", timeout_s: "time", max_model_calls: "model calls", max_tool_calls: "tool calls" });

/** @param {Budget} budget @param {number} value */
const shownValue = ({ unit }, value) => (unit === "usd" ? money(value) : unit === "s" ? duration(value) : count(Math.round(value)));

/**
 * The seconds until each limit at the rate so far, of the run's own clock if it has a time limit.
 * @param {Budget[]} budgets @param {number} age Seconds since the start. @returns {Map<string, number>}
 */
export function projections(budgets, age) {
  const spent = budgets.find((budget) => budget.unit === "s")?.used ?? age;
  /** @type {Map<string, number>} */ const left = new Map();
  for (const { name, used, limit, unit } of budgets) {
    if (limit === null || used <= 0 || spent < 5) continue;
    left.set(name, unit === "s" ? limit - used : ((limit - used) * spent) / used);
  }
  return left;
}

/** What an ended run has used. @param {number|null} iteration @param {any} usage @param {number|null} cost @param {any} result @returns {Budget[]} */
const spentOf = (iteration, usage, cost, result) =>
  /** @type {[string, number|null|undefined, string][]} */ ([["max_iterations", iteration, ""], ["max_total_tokens", usage?.total_tokens, "tokens"], ["max_cost_usd", usage?.cost_usd ?? cost, "usd"], ["timeout_s", result?.duration_s, "s"], ["max_tool_calls", result?.tool_calls?.run, ""]])
    .flatMap(([name, used, unit]) => (used === null || used === undefined ? [] : [{ name, used, limit: null, unit }]));

/** @param {Run} run @param {(name: string) => void} extend */
export function meters(run, extend) {
  const budgets = stable(run, ({ budgets, iteration, usage, cost_usd, result }) => (budgets?.length ? budgets : spentOf(iteration, usage, cost_usd, result)));
  const isLive = stable(run, ({ ended, phase }) => !ended && phase !== "idle");
  const mayExtend = stable(run, (snapshot) => controlOf(snapshot, "extend")?.enabled ?? false);
  return h("section.meters", { "aria-label": "Budgets" }, () => {
    const all = /** @type {Budget[]} */ (budgets() ?? []);
    const age = (Date.now() - Date.parse(run.snapshot.peek().started)) / 1000;
    const left = isLive() ? projections(all, age) : new Map();
    const first = Math.min(...left.values());
    const spent = all.find((budget) => budget.unit === "s")?.used ?? age;
    return all.map((budget) => {
      const { name, used, limit } = budget;
      const seconds = left.get(name);
      const reached = limit !== null && seconds !== undefined ? Math.min(limit, used + (used / spent) * first) : used;
      const share = limit ? Math.min(100, (used / limit) * 100) : 0;
      const isFirst = seconds !== undefined && seconds === first;
      const label = LABELS[name] ?? words(name);
      return h("div", { class: `meter${share >= 100 ? " is-full" : isFirst && share > 75 ? " is-near" : ""}` },
        h("p", h("span", label), h("span.figure", h("b", shownValue(budget, used)), limit === null ? "" : ` of ${shownValue(budget, limit)}`),
          mayExtend() && limit !== null ? h("button", { type: "button", class: "quiet small", "aria-label": `Extend ${label}`, title: `Extend ${label}`, onclick: () => extend(name) }, "+") : null),
        limit === null ? null : h("div.bar", { role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": limit, "aria-valuenow": Math.min(used, limit), "aria-valuetext": `${shownValue(budget, used)} of ${shownValue(budget, limit)}` },
          h("i.ahead", { style: { width: `${limit ? (reached / limit) * 100 : 0}%` } }), h("i", { style: { width: `${share}%` } })),
        seconds === undefined ? null : h("p.faint.small", isFirst ? `reached first, in about ${duration(Math.max(seconds, 1))}` : `then at ${shownValue(budget, reached)}`));
    });
  });
}

/** What people did to the run, newest first: sent, received, applied or refused. @param {Run} run */
export function actsPanel(run) {
  const recorded = computed(() => {
    void run.records.version.value;
    return JSON.stringify([...run.records.acts.values()].sort((a, b) => a.number - b.number));
  });
  return () => {
    const known = /** @type {import("./events.js").Act[]} */ (JSON.parse(recorded.value)).reverse();
    const ids = new Set(known.map((act) => act.id));
    const waiting = run.sent.value.filter((act) => !ids.has(act.progress.id)).reverse();
    if (!known.length && !waiting.length) return h("p.faint.small", "Nobody has steered this run.");
    return h("ol.acts",
      waiting.map((act) => h("li", { class: () => `act is-${act.progress.value.state}` }, () => glyph({ refused: "denied", failed: "failed", applied: "done" }[/** @type {string} */ (act.progress.value.state)] ?? "pending"),
        h("p", h("b", "you"), ` ${words(act.kind)} `, act.text ? h("q", act.text) : null, h("small", () => act.progress.value.detail)))),
      known.slice(0, 12).map((act) => h("li", { class: `act is-${act.state}` }, glyph(act.state === "refused" ? "denied" : act.state === "applied" ? "done" : "waiting"),
        h("p", h("b", act.by || "somebody"), ` ${words(act.kind)} `, act.text ? h("q", act.text) : null, h("small", actCourse(act), act.at ? [" · ", time(act.at)] : null)))));
  };
}

/** Delegates, circuits and dead letters, as far as there are any. @param {Run} run */
export function surroundings(run) {
  const found = stable(run, ({ children, circuits, dead_letters }) => ({ children, circuits, dead_letters: Array.isArray(dead_letters) ? dead_letters : [] }));
  const mayRequeue = stable(run, (snapshot) => controlOf(snapshot, "requeue")?.enabled ?? false);
  return () => {
    const { children, circuits, dead_letters } = found();
    /** @param {string} name @param {any[]} items @param {(one: any) => import("../ui.js").Child} row */
    const part = (name, items, row) => (items?.length ? h("section", h("h3", name), h("ul.plain-list", items.map((one) => h("li", row(one))))) : null);
    return [
      part("Delegates", children, (child) => [stateMark(child.state), h("a", { href: runPath(child.id) }, child.agent || child.id)]),
      part("Circuits", circuits, (one) => [glyph(one.state === "open" ? "failed" : one.state === "closed" ? "closed" : "stuck"), h("b", one.name), h("small", `${words(one.state)}, ${one.failures} failures`)]),
      part("Dead letters", dead_letters, (one) => [glyph("failed"), h("b", one.tool), h("small", one.error), mayRequeue() ? h("button", { type: "button", class: "small", onclick: () => run.send("requeue", { letter: one.id }, one.tool) }, "Requeue") : null]),
    ];
  };
}
