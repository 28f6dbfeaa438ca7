// @ts-check
/** The rows of a chat: the messages of a turn, its thinking and calls, and the goals that were started from it. */
import { address, runPath } from "../address.js";
import { post } from "../api.js";
import { capital, clock, words } from "../format.js";
import { markdown } from "../markdown.js";
import { glyph, stateMark } from "../marks.js";
import { planList } from "./plan.js";
import { withProgress } from "./plan_panel.js";
import { actCourse, eventLine, takeActs } from "./events.js";
import { callDetails, callLine, prose, thinking } from "./record.js";
import { runState } from "./state.js";
import { effect, h, stable } from "../ui.js";
import { waitList } from "../waits.js";
import { unfold } from "../widgets.js";

/** @typedef {import("./state.js").IterationRecord} IterationRecord */
/** @typedef {import("../ui.js").Child} Child */

/** Events that a chat shows as messages, or that only the run's page shows. */
const SILENT =
  /^(TurnStarted|Intervention|Started|Prepared|Policy|Question|Approval|Tools|Observations|BuildChanged|Notification)/;

/** @param {string} who @param {Child} more */
const author = (who, more) => h("h2.said-by", h("b", who), " ", more);

/** @param {string} who @param {string|null} at @param {string} text @param {string} [note] */
export const bubble = (who, at, text, note) =>
  h("div.said", author(who, clock(at)), h("p.plain", text), note ? h("p.small.faint", note) : null);

/**
 * @param {string} run @param {IterationRecord} record @param {boolean} isFirst The first of its turn by the agent.
 * @param {Set<string>} open What is open: calls by id, thinking by number.
 * @param {Map<string, import("./events.js").Act>} acts
 */
export function chatRow(run, record, isFirst, open, acts) {
  const { number, reply, calls, events, started } = record;
  const guided = takeActs(record, acts).filter((act) =>
    act.text && act.state !== "refused" && !/^(send|interrupt|requeue|close)/.test(act.kind));
  const notes = events.filter(({ event, data }) =>
    !SILENT.test(event) && !(event === "TurnEnded" && data.reason === "completed"));
  /** @param {string} name */
  const kept = (name) => ({
    open: open.has(name),
    ontoggle: (/** @type {any} */ { target }) => (target.open ? open.add(name) : open.delete(name)),
  });
  return h("li.turn", { "data-number": number },
    events.filter(({ event }) => event === "TurnStarted")
      .map(({ at, data }) => bubble(data.by || "You", at, data.message)),
    guided.map((act) => bubble(act.by || "You", act.at, act.text, `${words(act.kind)}: ${actCourse(act)}`)),
    isFirst ? author("Agent", clock(started)) : null,
    record.thinking ? thinking(run, record.thinking, kept(`${number}`)) : null,
    reply ? h("div.reply", prose(run, reply)) : null,
    calls.length ? h("div.chat-calls", calls.map((call) =>
      unfold(h("ul.calls", callLine(call)), () => callDetails(run, call), kept(call.id)))) : null,
    notes.map((event) => {
      const { state, text } = eventLine(event, events);
      return h("p.note", glyph(state), text);
    }));
}

/**
 * A goal that was started from the chat: its plan while it is under way, then its answer.
 * @param {string} session @param {{id: string, task: string, state: string, started: string}} row
 * @param {() => boolean} takeOwn True once, in the browser that has started it.
 */
export function goalRow(session, { id, task, state, started }, takeOwn) {
  const goal = runState(id);
  const shown = stable(() => {
    const now = goal.snapshot.value;
    const result = /** @type {any} */ (now?.result);
    return { state: now?.state ?? state, output: result?.output ?? null, reason: result?.termination?.reason };
  });
  const plan = stable(() => goal.snapshot.value?.plan);
  const select = (/** @type {string} */ step) => address.set({ step: address.get("step") === step ? "" : step });
  effect(() => {
    const { output } = shown.value;
    if (!output || !takeOwn()) return;
    // The session's model reads the answer with the next message. Only the browser that began the goal sends it.
    const text = `The goal "${task}" was pursued in a run of its own. Its answer:\n\n${output}`;
    const act = { id: `answer-${id}`.slice(0, 64), kind: "add_context", text };
    void post(`${runPath(session)}/actions`, act).catch(() => {});
  });
  return h("li.turn.goal-turn", bubble("You", started, task),
    h("section.card.stack", { "aria-label": "Goal" },
      h("p.row", h("span.tag", "goal"), () => stateMark(shown.value.state),
        h("a", { href: runPath(id) }, "Open its page")),
      waitList(() => goal.snapshot.value?.waits ?? []),
      () => plan.value
        ? planList(withProgress(goal, plan.value.steps), { selected: address.get("step"), select })
        : h("p.faint", "It plans.")),
    () => {
      const { output, reason } = shown.value;
      const note = reason === "completed" ? null : capital(words(reason));
      return output === null ? null : h("div.reply", author("Agent", note), markdown(() => output));
    });
}
