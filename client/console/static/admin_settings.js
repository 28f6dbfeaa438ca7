// @ts-check
/** The settings that can be changed at run time: edit, look at the difference, save, reset, go back to a version. */
import { may, Problem, put, resource } from "./api.js";
import { parse } from "./form.js";
import { DASH, time } from "./format.js";
import { dialog, empty, failed, view } from "./shell.js";
import { batch, computed, h, signal } from "./ui.js";

/** @typedef {{key: string, value: any, default: any, file_value: any, run_time_value: any, source: string, place: string|null, type: string, nullable: boolean, range: any, description: string, template_variables: {name: string, description: string, needed: boolean}[]|null}} Setting */

/** Takes a key out of the set, so that the file or the default counts. */
const RESET = Symbol("reset");
/** The edits by key. */
const edits = signal(/** @type {ReadonlyMap<string, any>} */ (new Map()));
const problem = signal(/** @type {Problem|null} */ (null));
const notice = signal("");
const wanted = signal("");

/** @param {any} value */
const text = (value) => (value === null || value === undefined ? DASH : typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** @param {Setting} one */
const isSaved = (one) => one.source === "run time";
/** @param {string} key */
const groupOf = (key) => key.split(".").slice(0, key.split(".").length > 2 ? 2 : 1).join(".");

export function settingsView() {
  const settings = resource("/settings");
  return h("div.stack", view(settings, (data) => {
    if (!data.items.length) return empty("Nothing can be set here", "This task queue has no settings that may change at run time.");
    return [
      condition(data),
      h("div.row", h("input", { type: "search", "aria-label": "Find a key", placeholder: "Find a key  /", value: wanted, oninput: (/** @type {any} */ event) => (wanted.value = event.target.value) }),
        h("span.soft.small", data.version ? `version ${data.version}` : "nothing saved yet: the values of the workers' configuration count")),
      () => (notice.value ? h("p", { role: "status", class: "mark tone-done" }, notice.value) : null),
      () => (problem.value ? failed(problem.value) : null),
      groups(data.items),
      bar(data, settings),
      history(data, settings),
    ];
  }, 8));
}

/** @param {any} data */
const condition = ({ state, detail }) =>
  ["broken", "unreachable"].includes(state) ? h("section.state.failed", { role: "alert" }, h("h2", `The settings are ${state}`), h("p", detail), h("p", "Meanwhile runs start with the values of the workers' configuration.")) : detail ? h("p.soft", detail) : null;

/** @param {Setting[]} all */
function groups(all) {
  const names = [...new Set(all.map((one) => groupOf(one.key)))];
  return names.map((name) => {
    const own = all.filter((one) => groupOf(one.key) === name);
    const found = () => own.filter((one) => !wanted.value || `${one.key} ${one.description}`.toLowerCase().includes(wanted.value.toLowerCase()));
    return h("details.card.settings", { hidden: () => !found().length, open: () => Boolean(wanted.value) || names.length < 4 || own.some((one) => isSaved(one) || edits.value.has(one.key)) },
      h("summary", h("strong", name), " ", h("span.faint.small", `${own.length} keys`)),
      own.map((one) => h("div", { hidden: () => !found().includes(one) }, row(one))));
  });
}

/** @param {Setting} one */
function row(one) {
  const changed = computed(() => edits.value.has(one.key));
  const now = () => {
    const edit = edits.value.get(one.key);
    return edit === RESET ? one.file_value : edit === undefined ? one.value : edit;
  };
  const mine = () => (problem.value?.errors ?? []).filter(({ where }) => where.split(", ").includes(one.key));
  /** @param {any} value */
  const set = (value) => {
    const next = new Map(edits.peek());
    if (value === RESET ? !isSaved(one) : JSON.stringify(value) === JSON.stringify(one.value)) next.delete(one.key);
    else next.set(one.key, value);
    notice.value = "";
    edits.value = next;
  };
  return h("div", { class: () => (changed.value ? "setting changed" : "setting") },
    h("div", h("label", { for: `set-${one.key}`, title: one.key }, h("span.unseen", `${groupOf(one.key)}.`), h("code", one.key.slice(groupOf(one.key).length + 1))), one.description ? h("p.small.soft", one.description) : null, variables(one)),
    h("div.stack", control(one, now, set), () => mine().map(({ detail }) => h("p.error", detail))),
    h("div.small.soft", () => changed.value ? [h("strong.tone-wait", "changed"), " ", h("button", { type: "button", class: "quiet small", onclick: () => edits.value = new Map([...edits.peek()].filter(([key]) => key !== one.key)) }, "Undo")] : h("span.tag", { title: one.place }, one.source),
      isSaved(one) && may("admin") ? h("button", { type: "button", class: "quiet small", onclick: () => set(RESET) }, "Reset") : null));
}

/** @param {Setting} one */
const variables = (one) => !one.template_variables?.length ? null : h("details.small.soft", h("summary", "Placeholders"), h("dl.facts", one.template_variables.map(({ name, description, needed }) => [h("dt", h("code", name), needed ? " (needed)" : ""), h("dd", description)])));

/** @param {Setting} one @param {() => any} now @param {(value: any) => void} set */
function control(one, now, set) {
  const range = one.range ?? {};
  const common = { id: `set-${one.key}`, disabled: !may("admin") };
  const choices = range.enum;
  if (choices) {
    const select = h("select", { ...common, value: () => now() ?? "", onchange: () => set(select.value) }, choices.map((/** @type {string} */ choice) => h("option", { value: choice }, choice)));
    return select;
  }
  if (one.type === "boolean") {
    const box = h("input", { ...common, type: "checkbox", checked: () => Boolean(now()), onchange: () => set(box.checked) });
    return box;
  }
  if (one.type === "integer" || one.type === "number") {
    const number = h("input", { ...common, type: "number", step: one.type === "number" ? "any" : 1, min: range.minimum, max: range.maximum, value: () => now() ?? "", placeholder: text(one.default), oninput: () => number.validity.badInput || set(number.value === "" ? RESET : Number(number.value)) });
    return number;
  }
  if (one.type === "string") {
    const long = String(one.value ?? "").length > 60 || /prompts|instructions/.test(one.key);
    const area = long ? h("textarea", { ...common, class: "code", rows: 6, value: () => now() ?? "", oninput: () => set(area.value || RESET) }) : h("input", { ...common, value: () => now() ?? "", placeholder: text(one.default), oninput: () => set(area.value || RESET) });
    return area;
  }
  const wrong = signal("");
  const json = h("textarea", { ...common, class: "code", rows: 2, value: () => (now() === null || now() === undefined ? "" : JSON.stringify(now())), onchange: () => {
    const parsed = parse(json.value);
    wrong.value = parsed.problem;
    if (!parsed.problem) set(parsed.value ?? RESET);
  } });
  return h("div", json, () => (wrong.value ? h("p.error", wrong.value) : null));
}

/** The whole set with the edits. @param {Setting[]} items */
function wholeSet(items) {
  const values = Object.fromEntries(items.filter(isSaved).map((one) => [one.key, one.run_time_value]));
  for (const [key, value] of edits.peek()) value === RESET ? delete values[key] : (values[key] = value);
  return values;
}

/** @typedef {ReturnType<typeof resource>} Source */

/** @param {any} data @param {Source} source */
const bar = (data, source) => h("div.bulk.bottom.row", { hidden: () => !edits.value.size, role: "region", "aria-label": "Changes" },
  h("strong", () => `${edits.value.size} ${edits.value.size === 1 ? "change" : "changes"}`),
  h("button", { type: "button", class: "primary", onclick: () => review("Save these changes?", data, wholeSet(data.items), source) }, "Review and save"),
  h("button", { type: "button", class: "quiet", onclick: () => (edits.value = new Map()) }, "Discard"));

/** @param {string} heading @param {any} data @param {Record<string, any>} values @param {Source} source */
function review(heading, data, values, source) {
  const next = (/** @type {Setting} */ one) => (one.key in values ? values[one.key] : one.file_value);
  const changes = /** @type {Setting[]} */ (data.items).filter((one) => JSON.stringify(next(one)) !== JSON.stringify(one.value) || one.key in values !== isSaved(one));
  const wrong = signal("");
  const body = changes.map((one) => h("div.stack", h("code", one.key), one.key in values ? null : h("span.small.soft", `reset to ${text(one.file_value)}`), difference(text(one.value), text(next(one)))));
  dialog(heading, [h("p.soft", "Runs that start later use it. Those under way keep what they began with."), h("div.stack.diffs", body.length ? body : "Nothing would change."), h("p.error", { hidden: () => !wrong.value }, wrong)], (close) => [
    h("button", { type: "button", onclick: close }, "Cancel"),
    h("button", { type: "button", class: "primary", disabled: !body.length, onclick: () => void save(data, values, source, wrong, close) }, "Save"),
  ]);
}

/** @param {any} data @param {Record<string, any>} values @param {Source} source @param {import("./ui.js").Signal<string>} wrong @param {() => void} close */
async function save(data, values, source, wrong, close) {
  try {
    const saved = await put("/settings", { version: data.version, values });
    batch(() => {
      edits.value = new Map();
      problem.value = null;
      notice.value = `Saved as version ${saved.version}`;
      source.data.value = saved;
    });
    close();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    wrong.value = error.detail;
    if (error.status === 409) await source.reload(); // the edits stay, on top of the newer set
    if (error.status === 422) (problem.value = error), close();
  }
}

/** What differs between two texts, by lines. @param {string} before @param {string} after */
function difference(before, after) {
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < Math.min(old.length, fresh.length) && old[start] === fresh[start]) start++;
  let end = 0;
  while (end < Math.min(old.length, fresh.length) - start && old[old.length - 1 - end] === fresh[fresh.length - 1 - end]) end++;
  /** @param {string[]} lines @param {string} sign @param {string} name */
  const block = (lines, sign, name) => lines.slice(start, lines.length - end).map((line) => h("div", { class: name }, h("span", { "aria-label": sign === "-" ? "before" : "after" }, `${sign} `), line));
  return h("pre.diff", start ? h("div.faint", `  … ${start} equal lines`) : null, block(old, "-", "gone"), block(fresh, "+", "come"), end ? h("div.faint", `  … ${end} equal lines`) : null);
}

/** @param {any} data @param {Source} source */
const history = (data, source) => h("section.card.stack", h("h2", "Versions"), !data.versions.length ? h("p.soft", "None yet.") :
  h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Versions" }, h("table", h("thead", h("tr", ["Version", "Saved", "By", "Changed", ""].map((name) => h("th", name || h("span.unseen", "Actions"))))),
    h("tbody", [...data.versions].reverse().map((/** @type {any} */ one) => h("tr", h("td.figure", one.version), h("td", time(one.at)), h("td", one.by), h("td", one.changed.map((/** @type {string} */ key) => h("div", h("code", key)))),
      h("td", one.version === data.version ? h("span.tag", "current") : may("admin") ? h("button", { type: "button", class: "small", onclick: () => review(`Go back to version ${one.version}?`, data, one.values, source) }, "Go back to it") : null)))))));
