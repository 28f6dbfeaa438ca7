// @ts-check
/** The settings that can be changed at run time: edit, look at the difference, save, reset, go back to a version. */
import { asProblem, may, Problem, put, resource } from "./api.js";
import { control } from "./form.js";
import { DASH, time } from "./format.js";
import { dialog } from "./shell.js";
import { batch, computed, h, signal } from "./ui.js";
import { button, empty, facts, failed, table, view } from "./widgets.js";

/** @typedef {import("orga-api").SettingItem} Setting */
/** @typedef {import("orga-api").Answer<"/settings">} Settings */
/** @typedef {import("./api.js").Resource<Settings>} Source */

/** The edit that removes a key from the set, so that the file or the default counts. */
const RESET = Symbol("reset");
/** The edits by key. */
const edits = signal(/** @type {ReadonlyMap<string, any>} */ (new Map()));
const problem = signal(/** @type {Problem|null} */ (null));
const notice = signal("");
const wanted = signal("");

/** @param {any} value */
const text = (value) =>
  value === null || value === undefined ? DASH : typeof value === "string" ? value : JSON.stringify(value, null, 2);
/** @param {any} one @param {any} other */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
/** @param {Setting} one */
const isSaved = (one) => one.source === "run time";
/** @param {string} key */
const groupOf = (key) => key.split(".").slice(0, key.split(".").length > 2 ? 2 : 1).join(".");

/** Edit a key. `undefined` removes the edit. @param {string} key @param {any} value */
function edit(key, value) {
  const next = new Map(edits.peek());
  if (value === undefined) next.delete(key);
  else next.set(key, value);
  notice.value = "";
  edits.value = next;
}

export function settingsView() {
  const settings = resource("/settings");
  const find = h("input", {
    type: "search", "aria-label": "Find a key", placeholder: "Find a key  /", value: wanted,
    oninput: () => (wanted.value = find.value),
  });
  return h("div.stack", view(settings, (data) => {
    if (!data.items.length)
      return empty("Nothing can be set here", "This task queue has no settings that may change at run time.");
    return [
      condition(data),
      h("div.row", find, h("span.soft.small", data.version ? `version ${data.version}`
        : "nothing is saved yet: the values of the workers' configuration count")),
      () => (notice.value ? h("p.mark.tone-done", { role: "status" }, notice.value) : null),
      () => (problem.value ? failed(problem.value) : null),
      groups(data.items),
      bar(data, settings),
      fixed(data.fixed),
      history(data, settings),
    ];
  }, 8));
}

/** @param {Settings} data */
function condition({ state, detail }) {
  if (state !== "broken" && state !== "unreachable") return detail ? h("p.soft", detail) : null;
  return h("section.state.failed", { role: "alert" }, h("h2", `The settings are ${state}`), h("p", detail),
    h("p", "Meanwhile runs start with the values of the workers' configuration."));
}

/** @param {Setting[]} all */
function groups(all) {
  const names = [...new Set(all.map((one) => groupOf(one.key)))];
  return names.map((name) => {
    const own = all.filter((one) => groupOf(one.key) === name);
    const isFound = (/** @type {Setting} */ one) =>
      `${one.key} ${one.description}`.toLowerCase().includes(wanted.value.toLowerCase());
    const isOpen = () =>
      Boolean(wanted.value) || names.length < 4 || own.some((one) => isSaved(one) || edits.value.has(one.key));
    return h("details.card.settings", { hidden: () => !own.some(isFound), open: isOpen },
      h("summary", h("strong", name), " ", h("span.faint.small", own.length === 1 ? "1 key" : `${own.length} keys`)),
      own.map((one) => h("div", { hidden: () => !isFound(one) }, row(one))));
  });
}

/** The keys that cannot be set at run time, and where to edit them. @param {Settings["fixed"]} keys */
const fixed = (keys) => keys.length ? h("details.card.settings",
  h("summary", h("strong", "Never edited here"), " ",
    h("span.faint.small", keys.length === 1 ? "1 key" : `${keys.length} keys`)),
  table("Never edited here",
    [["Key", ({ key }) => h("code", key)], ["Edit it at", ({ place }) => h("code", place)]], keys)) : null;

/** @param {Setting} one */
function row(one) {
  const { key, value, description } = one;
  const id = `set-${key}`;
  const changed = computed(() => edits.value.has(key));
  const now = () => {
    const edited = edits.value.get(key);
    return edited === RESET ? one.file_value : edited === undefined ? value : edited;
  };
  const errors = () => (problem.value?.errors ?? []).filter(({ where }) => where.split(", ").includes(key));
  const reset = () => edit(key, isSaved(one) ? RESET : undefined);
  const set = (/** @type {any} */ next) =>
    next === undefined ? reset() : edit(key, isSame(next, value) ? undefined : next);
  const isText = String(value ?? "").length > 60 || /prompts|instructions/.test(key);
  const schema = { ...one.range, type: one.type, default: one.default, isRequired: true };
  return h("div.setting", { class: () => (changed.value ? "changed" : "") },
    h("div",
      h("label", { for: id, title: key },
        h("span.unseen", `${groupOf(key)}.`), h("code", key.slice(groupOf(key).length + 1))),
      description ? h("p.small.soft", description) : null, variables(one)),
    h("div.stack",
      control(schema, { id, disabled: !may("admin"), ...(isText ? { rows: 6, class: "code" } : {}) }, now, set,
        { isLong: isText }),
      () => errors().map(({ detail }) => h("p.error", detail))),
    h("div.small.soft",
      () => changed.value
        ? [h("strong.tone-wait", "changed"), " ", button("Undo", () => edit(key, undefined), { class: "quiet small" })]
        : h("span.tag", { title: one.place }, one.source),
      isSaved(one) && may("admin") ? button("Reset", reset, { class: "quiet small" }) : null));
}

/** @param {Setting} one */
const variables = ({ template_variables: all }) => all?.length
  ? h("details.small.soft", h("summary", "Placeholders"), facts(all.map(({ name, description, needed }) =>
    [[h("code", name), needed ? " (needed)" : ""], description]))) : null;

/** The whole set with the edits. @param {Setting[]} items */
function wholeSet(items) {
  const values = Object.fromEntries(items.filter(isSaved).map((one) => [one.key, one.run_time_value]));
  for (const [key, value] of edits.peek()) value === RESET ? delete values[key] : (values[key] = value);
  return values;
}

/** @param {Settings} data @param {Source} source */
const bar = (data, source) => h("div.bulk.bottom.row",
  { hidden: () => !edits.value.size, role: "region", "aria-label": "Changes" },
  h("strong", () => `${edits.value.size} ${edits.value.size === 1 ? "change" : "changes"}`),
  button(
    "Review and save", () => review("Save these changes?", data, wholeSet(data.items), source), { class: "primary" }),
  button("Discard", () => (edits.value = new Map()), { class: "quiet" }));

/** @param {string} title @param {Settings} data @param {Record<string, any>} values @param {Source} source */
function review(title, data, values, source) {
  const next = (/** @type {Setting} */ one) => (one.key in values ? values[one.key] : one.file_value);
  const changes = data.items.filter((one) => !isSame(next(one), one.value) || one.key in values !== isSaved(one));
  const wrong = signal("");
  const parts = changes.map((one) => h("div.stack", h("code", one.key),
    one.key in values ? null : h("span.small.soft", `reset to ${text(one.file_value)}`),
    difference(text(one.value), text(next(one)))));
  const save = async () => {
    try {
      const saved = await put("/settings", { version: data.version, values });
      batch(() => {
        edits.value = new Map();
        problem.value = null;
        notice.value = `Saved as version ${saved.version}`;
        source.data.value = saved;
      });
      return true;
    } catch (error) {
      const found = asProblem(error);
      wrong.value = found.detail;
      if (found.status === 409) await source.reload(); // the edits stay, on top of the newer set
      if (found.status === 422) problem.value = found;
      return found.status === 422;
    }
  };
  dialog({
    title, action: changes.length ? "Save" : undefined, act: save,
    body: [
      h("p.soft", "Runs that start later use it. Those under way keep what they began with."),
      h("div.stack.diffs", parts.length ? parts : "Nothing would change."),
      h("p.error", { hidden: () => !wrong.value }, wrong),
    ],
  });
}

/** The lines in which two texts differ. @param {string} before @param {string} after */
function difference(before, after) {
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  const shorter = Math.min(old.length, fresh.length);
  let start = 0;
  while (start < shorter && old[start] === fresh[start]) start++;
  let end = 0;
  while (end < shorter - start && old.at(-1 - end) === fresh.at(-1 - end)) end++;
  const equal = (/** @type {number} */ n) => (n ? h("div.faint", `  … ${n} equal lines`) : null);
  /** @param {string[]} lines @param {string} sign @param {string} name @param {string} label */
  const block = (lines, sign, name, label) => lines.slice(start, lines.length - end).map((line) =>
    h("div", { class: name }, h("span", { "aria-label": label }, `${sign} `), line));
  return h("pre.diff",
    equal(start), block(old, "-", "tone-fail", "before"), block(fresh, "+", "tone-done", "after"), equal(end));
}

/** @param {Settings} data @param {Source} source */
function history(data, source) {
  const goBack = (/** @type {import("orga-api").SettingsVersion} */ { version, values }) =>
    button("Go back to it", () => review(`Go back to version ${version}?`, data, values, source), { class: "small" });
  return h("section.stack", h("h2", "Versions"), data.versions.length ? table("Versions", [
    ["Version", (one) => h("span.figure", one.version)],
    ["Saved", (one) => time(one.at)],
    ["By", (one) => one.by],
    ["Changed", (one) => one.changed.map((key) => h("div", h("code", key)))],
    [h("span.unseen", "Actions"), (one) =>
      one.version === data.version ? h("span.tag", "current") : may("admin") ? goBack(one) : ""],
  ], data.versions.toReversed()) : h("p.soft", "None yet."));
}
