// @ts-check
/** The panels with the view of the model (memory, conversation, recalled knowledge) and with the result of a run. */
import { runPath } from "../address.js";
import { resource } from "../api.js";
import { resolved } from "../form.js";
import { count, duration, money, time, words } from "../format.js";
import { markdown } from "../markdown.js";
import { glyph, stateMark } from "../marks.js";
import { h, stable } from "../ui.js";
import { asJson, button, copy, empty, facts, plain, table, view } from "../widgets.js";

/** @typedef {import("./state.js").Run} Run */
/** @typedef {import("../ui.js").Child} Child */

const PAGE = 40;

/** @param {Run} run @param {(number: number) => void} jump */
export function seesPanel(run, jump) {
  const place = (/** @type {number} */ number, /** @type {Child} */ more) => h("p.row",
    button(`iteration ${number}`, () => jump(number), { class: "quiet small" }), h("span.faint.small", more));
  const memory = resource(`${runPath(run.id)}/memory`);
  const recalled = stable(() => {
    void run.records.version.value;
    const all = run.records.loaded().flatMap(({ number, events }) => events.map((one) => ({ number, ...one })));
    return all.filter(({ event, data }) => event === "KnowledgeRecalled" && data.items?.length).slice(-10);
  });
  return h("div.sees.stack",
    h("section", h("h2", "Working memory"), view(memory, ({ items }) => items.length ? [
      plain(items.at(-1)?.memory || "empty"),
      h("details", h("summary", `Changes (${items.length})`), h("ol.versions", items.toReversed().map((change) =>
        h("li", place(change.iteration, time(change.at)), h("ul.changes",
          change.removed.map((line) => h("li.is-dropped", h("del", line))),
          change.added.map((line) => h("li.is-added", h("ins", line)))))))),
    ] : h("p.faint", "This run keeps no working memory: its conversation is all it has."), 2)),
    () => recalled.value.length ? h("section", h("h2", "Recalled knowledge"),
      h("ul.versions", recalled.value.map(({ number, data: { terms = [], items } }) =>
        h("li", place(number, terms.join(", ")), h("ul.plain-list", items.map(recalledItem)))))) : null,
    conversationPart(run));
}

/** @param {any} item */
const recalledItem = ({ id, score, tainted }) =>
  h("li", h("code", id), h("small", `score ${count(score)}${tainted ? ", from an untrusted source" : ""}`));

/** @param {Run} run */
function conversationPart(run) {
  const source = resource(`${runPath(run.id)}/conversation?limit=${PAGE}`);
  const { reload, more } = source;
  return h("section",
    h("h2.row", "Conversation as the model sees it", button("Read it again", reload, { class: "quiet small" })),
    view(source, ({ items, total, left_out }) => [
      left_out.length ? h("ul.left-out", left_out.map(leftOut)) : null,
      items.length ? h("ol.messages", items.map(message))
        : empty("No message yet", "The model has not been asked anything so far."),
      items.length < total ? button(`Show ${Math.min(PAGE, total - items.length)} more of ${count(total)}`,
        () => more(`&offset=${items.length}`)) : null,
    ]));
}

/** @param {import("orga-api").Answer<"/runs/x/conversation">["left_out"][number]} part */
const leftOut = ({ how, from, to, why, at }) => h("li", glyph("stuck"),
  h("p", h("b", words(how)), from === null ? "" : ` from iteration ${from} to ${to}`, why ? `: ${why}` : "", " ",
    h("small", time(at))));

/** @param {import("orga-api").SeenMessage} message */
const message = ({ role, tool, at, text, calls }) => h(`li.message.is-${role}`,
  h("p.message-role", tool ? h("code", tool) : role, at ? time(at) : null),
  text ? h("p.plain", text) : null,
  calls.map((call) => h("p.mono.small", h("b", call.name), ` ${JSON.stringify(call.arguments)}`)));

/** @param {string} name @param {string} type @param {string} text */
function save(name, type, text) {
  const link = h("a", { download: name });
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Why a value does not fit its schema, or "". @param {any} root @param {any} given @param {any} value */
function misfit(root, given, value) {
  const schema = resolved(root, given);
  const isNullable = given?.anyOf?.some((/** @type {any} */ one) => one.type === "null");
  const type = value === null ? "null"
    : Array.isArray(value)    ? "array"
    : Number.isInteger(value) ? "integer"
                              : typeof value;
  const types = [schema.type ?? []].flat();
  if (value === undefined)
    return root.required?.some((/** @type {any} */ key) => root.properties[key] === given) ? "missing" : "";
  if (!types.length || (value === null && isNullable)) return "";
  if (!types.includes(type) && !(type === "integer" && types.includes("number"))) return `is ${type}`;
  return schema.enum && !schema.enum.includes(value) ? "is none of the choices" : "";
}

/** The data of a result. Each key is compared with the output schema of the run. @param {Run} run @param {any} data */
function dataPart(run, data) {
  const input = resource(`${runPath(run.id)}/input`).data;
  return h("section", h("h2", "Data"), () => {
    const root = input.value?.input.output_schema;
    if (!root?.properties || typeof data !== "object") return asJson(data);
    return table("Data", [
      ["Key", (key) => h("code", key)],
      ["Type", (key) => {
        const { type, enum: choices } = resolved(root, root.properties[key]);
        return (choices ?? [type ?? []].flat()).join(" or ") || "not in the schema";
      }],
      ["Fits", (key) => {
        const why = misfit(root, root.properties[key], data[key]);
        return h("span.mark", { class: why ? "tone-fail" : "tone-done" }, glyph(why ? "failed" : "ok"), why || "yes");
      }],
      ["Value", (key) => (data[key] === undefined ? null : asJson(data[key]))],
    ], [...new Set([...Object.keys(root.properties), ...Object.keys(data)])]);
  });
}

/** @param {string} name */
const source = (name) => h("li", h("code", name));

/** @param {any} delivery */
const delivery = ({ status, name, kind, error }) =>
  h("p.row", stateMark(status), `${name} (${kind})`, error ? h("span.bad", error) : null);

/** @param {Run} run */
export function resultPanel(run) {
  const shown = stable(() => {
    const { result, state, detail, ended } = run.now;
    return { found: /** @type {any} */ (result), state, detail, ended };
  });
  return h("div.result.stack", () => {
    const { found, state, detail, ended } = shown.value;
    if (!found && ended) {
      const why = detail || "It ended before it could write one. Its timeline shows how far it got.";
      return [stateMark(state), empty("This run left no result", why)];
    }
    if (!found)
      return empty("No result yet",
        "The answer appears here when the run has ended, with its data, its sources and its confidence.");
    const { termination, output = "", data, confidence, sources = [], deliveries = [], usage } = found;
    const calls = Object.entries(found.tool_calls ?? {}).filter(([, n]) => n);
    return [
      h("div.row", stateMark(termination?.reason ?? state), h("span.soft", termination?.detail), h("span.grow"),
        copy(output, "Copy the answer"),
        button("Download Markdown", () => save(`${run.id}.md`, "text/markdown", output), { class: "small" }),
        button("Download JSON", () => save(`${run.id}.json`, "application/json", JSON.stringify(found, null, 2)),
          { class: "small" })),
      h("h2", "Answer"),
      output ? h("article.card.answer", markdown(() => output)) : h("p.faint", "The run ended without an answer."),
      data === null || data === undefined ? null : dataPart(run, data),
      facts([
        ["confidence", typeof confidence === "number" ? `${Math.round(confidence * 100)} %` : null],
        ["sources", sources.length ? h("ul.plain-list", sources.map(source)) : null],
        ["deliveries", deliveries.length ? deliveries.map(delivery) : null],
        ["iterations", count(found.iterations)],
        ["rounds", found.rounds],
        ["turns", found.turns],
        ["time", duration(found.duration_s)],
        ["tokens", count(usage?.total_tokens)],
        ["cost", money(usage?.cost_usd)],
        ["calls", calls.map(([name, n]) => `${n} ${words(name)}`).join(", ") || "none"],
      ], { class: "card" }),
    ];
  });
}
