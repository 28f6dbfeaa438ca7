// @ts-check
/**
 * States as people see them: a shape, a colour and a text, never a colour alone.
 *
 *     stateMark("acting")   badge of a run's, step's or call's state;   glyph("acting") its shape alone
 *     kindLabel("approval") "Approval"
 */
import { h, s } from "./ui.js";
import { words } from "./format.js";

/** @typedef {"run"|"wait"|"pause"|"done"|"limit"|"stop"|"fail"|"rest"} Tone */

/** @type {Record<Tone, string>} */
const SHAPES = {
  run: "M8 1.8a6.2 6.2 0 1 1-5.4 3.1M8 5.4a2.6 2.6 0 1 0 .01 0Z", // an open ring around a small one
  wait: "M8 1 15 8 8 15 1 8ZM8 5v3.5M8 10.6v.4", // a diamond
  pause: "M4.5 2.5v11M11.5 2.5v11",
  done: "M2 8.6 6.2 12.6 14 3.8",
  limit: "M8 2 15 14H1ZM8 6.5v3.6M8 11.9v.3", // a triangle
  stop: "M3 3h10v10H3Z",
  fail: "M3 3l10 10M13 3 3 13",
  rest: "M8 2.5a5.5 5.5 0 1 0 .01 0Z",
};

/** The tone of each state. All others have the tone `run`. */
const TONES = new Map(/** @type {[Tone, string][]} */ ([
  ["wait", "waiting held approval answer escalation budget result delivery escalated"],
  ["pause", "paused"],
  ["rest", "idle pending proposed not_run skipped"],
  ["done", "closed completed ok done allow delivered"],
  ["limit", "max_iterations max_tokens max_cost timeout stuck"],
  ["stop", "aborted denied deny policy_denial cancelled"],
  ["fail", "error failed terminated invalid timed_out"],
]).flatMap(([tone, states]) => states.split(" ").map((state) => [state, tone])));

/** @param {string} state @returns {Tone} */
const toneOf = (state) => TONES.get(state) ?? "run";

/** @param {string} state */
export const glyph = (state) => {
  const look = { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" };
  return s(`svg.glyph.tone-${toneOf(state)}`, look, s("path", { d: SHAPES[toneOf(state)] }));
};

/** @param {string} state */
export const stateMark = (state) => h(`span.mark.tone-${toneOf(state)}`, glyph(state), words(state));

/** @type {Record<string, string>} */
const KINDS = {
  approval: "Approval", answer: "Question", escalation: "Escalation", budget: "Budget is used up",
  result: "Result of a call", delivery: "Undelivered answer", plan: "Plan to review",
};

/** @param {string} kind */
export const kindLabel = (kind) => KINDS[kind] ?? words(kind);
