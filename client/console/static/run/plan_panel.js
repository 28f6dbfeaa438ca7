// @ts-check
/** The panel of a goal's plan: graph or list, the chosen step, the override of the next one, and all versions. */
import { address, runPath } from "../address.js";
import { resource } from "../api.js";
import { time } from "../format.js";
import { planGraph, planList, scoreText, stepLabel, stepMark } from "./plan.js";
import { act, controlOf } from "./controls.js";
import { h, onChange, stable } from "../ui.js";
import { button, chip, empty, facts, view } from "../widgets.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("./plan.js").Step} Step */
/** @typedef {(number: number) => void} Jump */

/** Give open steps the status `running` if their call or delegate is live. @param {Run} run @param {Step[]} steps */
export function withProgress(run, steps) {
  const done = new Set(steps.filter(({ status }) => status === "done").map(({ id }) => id));
  const calls = new Set(run.live.value.filter((one) => one.run === run.id).map(({ name }) => name));
  return steps.map((step) => {
    const isLive = calls.has(step.skill) && step.depends_on.every((id) => done.has(id));
    return step.status === "open" && (step.delegate || isLive) ? { ...step, status: "running" } : step;
  });
}

/** @param {Run} run @param {Jump} jump */
export function planPanel(run, jump) {
  const plan = stable(() => run.now.plan);
  const trend = stable(() => run.now.trend);
  const override = stable(() => controlOf(run.now, "override_step"));
  const isGraph = () => (address.get("plan") || (innerWidth > 720 ? "graph" : "list")) === "graph";
  const select = (/** @type {string} */ id) => address.set({ step: address.get("step") === id ? "" : id });
  const choice = (/** @type {boolean} */ graph, /** @type {string} */ label) =>
    chip(label, () => isGraph() === graph, () => address.set({ plan: graph ? "graph" : "list" }));
  const versions = resource(`${runPath(run.id)}/plans`);
  onChange(() => plan.value, versions.reload);
  return h("div.plan-panel.stack",
    h("div.row", choice(true, "Graph"), choice(false, "List"),
      () => {
        const { round = 0 } = plan.value ?? {};
        const notes = [round && `round ${round}`, trend.value && `scores: ${trend.value}`];
        return h("span.soft.small", notes.filter(Boolean).join(" · "));
      },
      () => {
        if (!override.value) return null;
        const { enabled, why } = override.value;
        return button("Override the next step", () => enabled && act(run, "override_step"),
          { class: "small", "aria-disabled": enabled ? null : "true", title: why || null });
      }),
    () => {
      if (!plan.value)
        return empty("No plan yet",
          "A goal's plan appears here when its model has made one. Its steps show their state and score.");
      const steps = withProgress(run, plan.value.steps);
      const selected = address.get("step");
      const chosen = steps.find((step) => step.id === selected);
      return [
        isGraph() ? h("div.scroll.plan-scroll", { tabindex: 0, role: "region", "aria-label": "Graph of the plan" },
          planGraph(steps, { selected, select })) : planList(steps, { selected, select }),
        chosen ? stepDetails(chosen, jump) : null,
      ];
    },
    h("section", h("h2", "Versions"),
      view(versions, ({ items }) => items.length
        ? h("ol.versions", { reversed: true }, items.toReversed().map((version) => versionRow(version, jump)))
        : h("p.faint", "The plan has not been adjusted."), 2)));
}

/** @param {Step} step @param {Jump} jump */
function stepDetails({ id, place, status, goal, skill, depends_on, score, error, delegate }, jump) {
  const iteration = Number.parseInt(place ?? "", 10);
  return h("section.card.stack", { "aria-label": `Step ${id}` },
    h("h2.row", stepMark(status), id, h("span.soft.small", stepLabel(status))), h("p", goal), facts([
      ["done by", h("code", skill)],
      ["after", depends_on.join(", ")],
      ["score", score === null ? null : scoreText(score)],
      ["failure", error && h("span.bad", error)],
    ]),
    h("p.row", iteration >= 0 ? button(`Show iteration ${iteration}`, () => jump(iteration), { class: "small" }) : null,
      delegate ? h("a", { href: runPath(delegate) }, "Open its run") : null));
}

/** @param {import("orga-api").Answer<"/runs/x/plans">["items"][number]} version @param {Jump} jump */
function versionRow({ version, by, at, iteration, reason, steps, added, dropped, changed }, jump) {
  /** @param {string} label @param {string[]} ids */
  const part = (label, ids) => (ids.length ? h(`li.is-${label}`, h("b", label), ` ${ids.join(", ")}`) : null);
  return h("li",
    h("p.row", h("b", `Version ${version}`), by ? h("span.soft", `by ${by}`) : null, h("span.faint.small", time(at)),
      button(`iteration ${iteration}`, () => jump(iteration), { class: "quiet small" })),
    reason ? h("p.soft", reason) : null,
    version > 1 ? h("ul.changes", part("added", added), part("dropped", dropped), part("changed", changed))
      : h("p.soft.small", steps.map(({ id }) => id).join(", ")));
}
