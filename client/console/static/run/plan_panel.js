// @ts-check
/** The panel of a goal's plan: graph or list, the chosen step, the override of the next one, and all versions. */
import { resource } from "../api.js";
import { time } from "../format.js";
import { planGraph, planList, scoreText, stepLabel, stepMark } from "./plan.js";
import { act, controlOf } from "./controls.js";
import { address, runPath, stable } from "./state.js";
import { empty, view } from "../shell.js";
import { effect, h, signal } from "../ui.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("./plan.js").Step} Step */

/** Steps whose calls are in flight are under way, whatever the plan says yet. @param {Step[]} steps @param {any[]} live @returns {Step[]} */
const withProgress = (steps, live) =>
  steps.map((step) => (step.status === "open" && (step.delegate || live.some((one) => step.place && one.activity_id.startsWith(step.place))) ? { ...step, status: "running" } : step));

/** @param {Run} run @param {(number: number) => void} jump */
export function planPanel(run, jump) {
  const plan = stable(run, ({ plan, trend }) => (plan ? { ...plan, trend: trend ?? plan.trend } : null));
  const isGraph = signal(address.get("plan") ? address.get("plan") === "graph" : innerWidth > 720);
  const selected = signal(/** @type {string|null} */ (address.get("step") || null));
  const select = (/** @type {string} */ id) => {
    selected.value = selected.value === id ? null : id;
    address.set({ step: selected.value ?? "" });
  };
  const choice = (/** @type {boolean} */ graph) =>
    h("button", { type: "button", class: "chip", "aria-pressed": () => String(isGraph.value === graph), onclick: () => ((isGraph.value = graph), address.set({ plan: graph ? "graph" : "list" })) }, graph ? "Graph" : "List");
  const mayOverride = stable(run, (snapshot) => controlOf(snapshot, "override_step"));
  const versions = resource(`${runPath(run.id)}/plans`);
  let isFirst = true;
  effect(() => {
    void plan();
    if (!isFirst) void versions.reload();
    isFirst = false;
  });
  return h("div.plan-panel.stack",
    h("div.row", choice(true), choice(false),
      () => { const now = plan(); return now ? h("span.soft.small", [now.version ? `version ${now.version}` : "", now.round ? `round ${now.round}` : "", now.trend ? `scores: ${now.trend}` : ""].filter(Boolean).join(" · ")) : null; },
      () => { const control = mayOverride(); return control ? h("button", { type: "button", class: "small", "aria-disabled": control.enabled ? null : "true", title: control.why || null, onclick: () => control.enabled && act(run, "override_step") }, "Override the next step") : null; }),
    () => {
      const now = plan();
      if (!now) return empty("No plan yet", "A goal's plan stands here as soon as its model has made one. Its steps show their state and score.");
      const steps = withProgress(now.steps, run.live.value.filter((one) => one.run === run.id));
      const chosen = steps.find((step) => step.id === selected.value);
      return [
        isGraph.value ? h("div.scroll.plan-scroll", { tabindex: 0, role: "region", "aria-label": "Graph of the plan" }, planGraph(steps, { selected: selected.value, select })) : planList(steps, { selected: selected.value, select }),
        chosen ? stepDetails(run, chosen, jump) : null,
      ];
    },
    h("section", h("h2", "Versions"), view(versions, ({ items }) =>
      items.length ? h("ol.versions", { reversed: true }, [...items].reverse().map((version) => versionRow(version, jump))) : h("p.faint", "The plan has not been adjusted."), 2)));
}

/** @param {Run} run @param {Step} step @param {(number: number) => void} jump */
function stepDetails(run, step, jump) {
  const iteration = Number.parseInt(step.place ?? "", 10);
  return h("section.card.stack", { "aria-label": `Step ${step.id}` },
    h("h2.row", stepMark(step.status), step.id, h("span.soft.small", stepLabel(step.status))),
    h("p", step.goal),
    h("dl.facts", h("dt", "done by"), h("dd", h("code", step.skill)),
      step.depends_on.length ? [h("dt", "after"), h("dd", step.depends_on.join(", "))] : null,
      step.score === null ? null : [h("dt", "score"), h("dd", scoreText(step.score))],
      step.error ? [h("dt", "failure"), h("dd.bad", step.error)] : null),
    h("p.row",
      iteration >= 0 ? h("button", { type: "button", class: "small", onclick: () => jump(iteration) }, `Show iteration ${iteration}`) : null,
      step.delegate ? h("a", { href: runPath(step.delegate) }, "Open its run") : null));
}

/** @param {any} version @param {(number: number) => void} jump */
function versionRow(version, jump) {
  const name = (/** @type {any} */ step) => (typeof step === "string" ? step : step.id);
  /** @param {string} label @param {any[]} steps */
  const part = (label, steps) => (steps?.length ? h("li", { class: `is-${label}` }, h("b", label), ` ${steps.map(name).join(", ")}`) : null);
  return h("li", h("p.row", h("b", `Version ${version.version}`), version.by ? h("span.soft", `by ${version.by}`) : null, h("span.faint.small", time(version.at)),
      version.iteration === null ? null : h("button", { type: "button", class: "quiet small", onclick: () => jump(version.iteration) }, `iteration ${version.iteration}`)),
    version.reason ? h("p.soft", version.reason) : null,
    version.version > 1 ? h("ul.changes", part("added", version.added), part("dropped", version.dropped), part("changed", version.changed)) : h("p.soft.small", (version.steps ?? []).map(name).join(", ")));
}

