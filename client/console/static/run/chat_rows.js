// @ts-check
/** The rows of a chat: the messages of a turn, its thinking and calls, and the goals that were started from it. */
import { post } from "../api.js";
import { bytes, capital, words } from "../format.js";
import { markdown } from "../markdown.js";
import { glyph, stateMark } from "../marks.js";
import { planList } from "./plan.js";
import { actCourse, eventLine, takeActs } from "./events.js";
import { callDetails, callLine, clock, textOf } from "./record.js";
import { runPath, runState, stable } from "./state.js";
import { effect, h, signal } from "../ui.js";
import { waitList } from "../waits.js";

/** @typedef {import("./state.js").Record_} Record_ */
/** @typedef {import("./state.js").Call} Call */

/** Events that a chat tells by its messages, or that only the run's page shows. */
const SILENT = /^(TurnStarted|Intervention|Started|Prepared|Policy|Question|Approval|Tools|Observations|BuildChanged|Notification)/;

/** @param {string} who @param {string|null} at @param {...import("../ui.js").Child} content */
export const bubble = (who, at, ...content) => h("div.said", h("h2.said-by", h("b", who), " ", clock(at)), ...content);

/** @param {string} run @param {Record_} record @param {Set<string>} open What is open: calls by id, thinking by number. @param {Map<string, import("./events.js").Act>} acts */
export function chatRow(run, record, open, acts) {
  const begun = record.events.filter((event) => event.event === "TurnStarted");
  const guided = takeActs(record, acts).filter((act) => act.text && act.state !== "refused");
  const rest = record.events.filter((event) => !SILENT.test(event.event) && !(event.event === "TurnEnded" && event.data.reason === "completed"));
  return h("li.turn", { "data-number": record.number },
    begun.map((event) => bubble(event.data.by || "You", event.at, h("p.plain", event.data.message))),
    guided.map((act) => bubble(act.by || "You", act.at, h("p.plain", act.text), h("p.small.faint", `${words(act.kind)}: ${actCourse(act)}`))),
    record.thinking ? h("details.thinking", { open: open.has(`${record.number}`), ontoggle: (/** @type {any} */ event) => keep(open, `${record.number}`, event.target.open) }, h("summary", `Thinking (${bytes(record.thinking.size)})`), textOf(run, record.thinking)) : null,
    record.reply ? h("div.reply", record.calls.length ? null : h("h2.said-by", h("b", "Agent"), " ", clock(record.ended ?? record.started)), record.reply.reference ? textOf(run, record.reply) : markdown(() => record.reply?.head ?? "")) : null,
    record.calls.length ? h("div.chat-calls", record.calls.map((call) => toolLine(run, call, open))) : null,
    rest.map((event) => { const { state, text } = eventLine(event); return h("p.note", glyph(state), text); }));
}

/** @param {Set<string>} open @param {string} name @param {boolean} is */
const keep = (open, name, is) => void (is ? open.add(name) : open.delete(name));

/** @param {string} run @param {Call} call @param {Set<string>} open */
function toolLine(run, call, open) {
  const box = h("details", { open: open.has(call.id), ontoggle: () => {
    keep(open, call.id, box.open);
    fill();
  } }, h("summary", h("ul.calls", callLine(call))));
  const fill = () => void (box.open && box.children.length < 2 && box.append(callDetails(run, call)));
  fill();
  return box;
}

/**
 * A goal that was started from the chat: its plan while it is under way, then its answer.
 * @param {string} session @param {any} row @param {() => boolean} takeOwn True once, in the browser that has started it.
 */
export function goalRow(session, row, takeOwn) {
  const goal = runState(row.id);
  const plan = stable(goal, (snapshot) => snapshot?.plan ?? null);
  const state = stable(goal, (snapshot) => ({ state: snapshot?.state ?? row.state, output: snapshot?.result?.output ?? null, reason: snapshot?.result?.termination?.reason ?? null }));
  const waits = stable(goal, (snapshot) => snapshot?.waits ?? []);
  const selected = signal(/** @type {string|null} */ (null));
  effect(() => {
    const { output } = state();
    // The session's model reads the answer with the next message. Who only looks at the chat sends nothing.
    if (output && takeOwn()) void post(`${runPath(session)}/actions`, { id: `answer-${row.id}`.slice(0, 64), kind: "add_context", text: `The goal "${row.task}" was pursued in a run of its own. Its answer:\n\n${output}` }).catch(() => {});
  });
  return h("li.turn.goal-turn",
    bubble("You", row.started, h("p.plain", row.task)),
    h("section.card.stack", { "aria-label": "Goal" },
      h("p.row", h("span.tag", "goal"), () => stateMark(state().state), h("a", { href: runPath(row.id) }, "Open its page")),
      waitList(waits),
      () => (plan() ? planList(plan().steps, { selected: selected.value, select: (id) => (selected.value = selected.peek() === id ? null : id) }) : h("p.faint", "It plans."))),
    () => {
      const { output, reason } = state();
      return output === null ? null : h("div.reply", h("h2.said-by", h("b", "Agent"), reason === "completed" ? null : ` ${capital(words(reason))}`), markdown(() => output));
    });
}
