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
  run: "M8 1.8a6.2 6.2 0 1 1-5.4 3.1M8 5.4a2.6 2.6 0 1 0 .01 0Z", // a ring that is under way
  wait: "M8 1 15 8 8 15 1 8ZM8 5v3.5M8 10.6v.4", // a diamond
  pause: "M4.5 2.5v11M11.5 2.5v11",
  done: "M2 8.6 6.2 12.6 14 3.8",
  limit: "M8 2 15 14H1ZM8 6.5v3.6M8 11.9v.3", // a triangle
  stop: "M3 3h10v10H3Z",
  fail: "M3 3l10 10M13 3 3 13",
  rest: "M8 2.5a5.5 5.5 0 1 0 .01 0Z",
};

/** @type {Record<string, Tone>} */
const TONES = {
  waiting: "wait", held: "wait", approval: "wait", answer: "wait", escalation: "wait", budget: "wait", delivery: "wait", escalated: "wait",
  paused: "pause", idle: "rest", pending: "rest", proposed: "rest", not_run: "rest", skipped: "rest", closed: "done",
  completed: "done", ok: "done", done: "done", allow: "done", delivered: "done",
  max_iterations: "limit", max_tokens: "limit", max_cost: "limit", timeout: "limit", stuck: "limit",
  aborted: "stop", denied: "stop", deny: "stop", policy_denial: "stop", cancelled: "stop",
  error: "fail", failed: "fail", terminated: "fail", invalid: "fail", timed_out: "fail",
};

/** @param {string} state @returns {Tone} */
export const toneOf = (state) => TONES[state] ?? "run";

/** @param {string} state */
export const glyph = (state) =>
  s("svg", { class: `glyph tone-${toneOf(state)}`, viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, s("path", { d: SHAPES[toneOf(state)] }));

/** @param {string} state */
export const stateMark = (state) => h("span", { class: `mark tone-${toneOf(state)}` }, glyph(state), words(state));

const KINDS = /** @type {Record<string, string>} */ ({
  approval: "Approval", answer: "Question", escalation: "Escalation", budget: "Budget is used up", delivery: "Undelivered answer", plan: "Plan to review",
});

/** @param {string} kind */
export const kindLabel = (kind) => KINDS[kind] ?? words(kind);
