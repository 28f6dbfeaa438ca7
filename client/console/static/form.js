// @ts-check
/**
 * A form from a JSON Schema. It edits one value, a signal, which others may change too.
 *
 *     fields(form, keysOf(form))     control(schema, attributes, read, write)     jsonView(value, label)
 * An empty field removes its key, so a default stays a default. A problem is shown at the field that it names.
 */
import { DASH, bytes, capital, parse, words } from "./format.js";
import { effect, h, signal } from "./ui.js";
import { chip, chips, suggestions } from "./widgets.js";

/** @typedef {import("./ui.js").Attributes} Attributes */
/** @typedef {import("./ui.js").Child} Child */
/**
 * @typedef {object} Form
 * @property {any} schema
 * @property {import("./ui.js").Signal<any>} value
 * @property {() => import("./api.js").FieldError[]} [problems]
 * @property {(where: string) => string|undefined} [standard] the value that counts if the field is empty,
 *   unless that is the schema's default
 * @property {Record<string, () => string[]>} [choices] suggestions for a path, such as the names of agents
 * @property {Set<string>} [long] paths of long texts
 * @property {Set<string>} [skip] paths that are shown elsewhere
 */

/** @param {any} value @param {string[]} path @returns {any} */
const valueAt = (value, path) => path.reduce((found, key) => found?.[key], value);

/**
 * Return a copy with another value at the path. `undefined` removes the key.
 * @param {any} value @param {string[]} path @param {any} next @returns {any}
 */
function withValue(value, [key = "", ...rest], next) {
  const inner = rest.length ? withValue(value?.[key], rest, next) : next;
  const copy = { ...value };
  if (inner === undefined || (rest.length && inner && !Object.keys(inner).length)) delete copy[key];
  else copy[key] = inner;
  return copy;
}

/** Follow references, and take the one branch that is not null. @param {any} root @param {any} schema @returns {any} */
export function resolved(root, schema) {
  if (schema?.$ref)
    return resolved(root, { ...valueAt(root, schema.$ref.slice(2).split("/")), ...schema, $ref: undefined });
  const branches = schema?.anyOf?.filter((/** @type {any} */ one) => one.type !== "null");
  if (branches?.length === 1) return resolved(root, { ...schema, ...branches[0], anyOf: undefined });
  return schema ?? {};
}

/** @param {Form} form @param {string[]} path */
const schemaAt = (form, path) =>
  path.reduce((found, key) => resolved(form.schema, found.properties?.[key]), resolved(form.schema, form.schema));

/** The paths of all keys of an object. @param {Form} form @param {string[]} [path] */
export const keysOf = (form, path = []) =>
  Object.keys(schemaAt(form, path).properties ?? {}).map((key) => [...path, key]);

/** @param {Form} form @param {string[][]} paths */
export const fields = (form, paths) => paths.map((path) => field(form, path));

let made = 0;

/** @param {Form} form @param {string[]} path @returns {HTMLElement|null} */
export function field(form, path) {
  const schema = schemaAt(form, path);
  if (!Object.keys(schema).length) return null;
  const where = path.join(".");
  const problems = () => (form.problems?.() ?? []).filter((one) =>
    one.where === where || (one.where.startsWith(`${where}.`) && !schema.properties));
  const name = capital(path.at(-1)).replace(/ (s|ms)$/, " ($1)").replace(/ usd$/, " (USD)");
  if (schema.properties) {
    const inner = keysOf(form, path).filter((one) => !form.skip?.has(one.join(".")));
    return h("details.group", { open: () => problems().length > 0 },
      h("summary", name), hint(schema), h("div.fields", fields(form, inner)));
  }
  const id = `field-${++made}`;
  const isLong = form.long?.has(where);
  const attributes = {
    id, "aria-describedby": `${id}-hint`, "aria-invalid": () => String(problems().length > 0),
    required: schemaAt(form, path.slice(0, -1)).required?.includes(path.at(-1)),
    ...(isLong ? { rows: where.includes(".") ? 3 : 5 } : {}),
  };
  return h("div.field", { class: schema.type === "boolean" ? "inline" : "", "data-where": where },
    h("label", { for: id }, schema.label ?? name),
    control({ ...schema, items: resolved(form.schema, schema.items) }, attributes,
      () => valueAt(form.value.value, path), (next) => (form.value.value = withValue(form.value.peek(), path, next)),
      { isLong, choices: form.choices?.[where], standard: () => form.standard?.(where) }),
    h("div.small.soft", { id: `${id}-hint` }, hint(schema), () => problems().map((one) => h("p.error", one.detail))));
}

/** @param {{description?: string, minimum?: any, maximum?: any}} schema */
function hint({ description = "", minimum, maximum }) {
  const range = [minimum > 1 && `at least ${minimum}`, maximum < 1e6 && `at most ${maximum}`].filter(Boolean)
    .join(", ");
  // In a form, an empty field is null. Text between backquotes becomes code.
  const about = String(description).replace(/\bNull(:| for) /g, "Empty: ").replace(/\bNull /g, "An empty field ")
    .split("`");
  const text = about.map((part, at) => (at % 2 ? h("code", part) : part));
  return description || range ? h("p", text, range ? `${description ? " " : ""}${capital(range)}.` : null) : null;
}

/**
 * The control of one value. `write(undefined)` removes the value.
 * @param {any} schema @param {Attributes} common @param {() => any} read @param {(next: any) => void} write
 * @param {{isLong?: boolean, choices?: () => string[], standard?: () => string|undefined}} [options]
 * @returns {Child}
 */
export function control(schema, common, read, write, { isLong = false, choices, standard } = {}) {
  const { type } = schema;
  const isPlain = schema.default !== null && typeof schema.default !== "object";
  const placeholder = schema.default === null ? "not set" : isPlain ? String(schema.default ?? "") : "";
  /** @param {(input: any) => any} take @param {Attributes} [more] */
  const text = (take, more = {}) => ({
    ...common,
    placeholder: () => standard?.() ?? placeholder,
    value: () => read() ?? "",
    oninput: (/** @type {any} */ event) => take(event.target),
    ...more,
  });
  if (schema.enum) {
    const first = h("option", { value: "" }, placeholder ? `${words(placeholder)} (default)` : DASH);
    const options = schema.enum.map((/** @type {string} */ one) => h("option", { value: one }, words(one)));
    return h("select", text((select) => write(select.value || undefined)), schema.isRequired ? null : first, options);
  }
  if (type === "boolean") {
    const standard = schema.default ?? false;
    const onchange = (/** @type {any} */ { target }) => write(target.checked === standard ? undefined : target.checked);
    return h("input", { ...common, type: "checkbox", checked: () => read() ?? standard, onchange });
  }
  if (type === "integer" || type === "number") {
    const take = (/** @type {HTMLInputElement} */ input) =>
      input.validity.badInput || write(input.value === "" ? undefined : Number(input.value));
    const { minimum: min, maximum: max } = schema;
    const step = type === "integer" ? 1 : "any";
    return h("input", text(take, { type: "number", inputmode: "decimal", step, min, max }));
  }
  if (type === "string") {
    const attributes = text((input) => write(input.value || undefined), { maxlength: schema.maxLength });
    if (isLong) return h("textarea", attributes);
    const list = `${common.id}-list`;
    return choices ? h("div", h("input", { ...attributes, list }), suggestions(list, choices)) : h("input", attributes);
  }
  if (type === "array" && schema.items?.type === "string" && !schema.items.enum)
    return names(common, choices, read, write);
  return jsonArea({ rows: 2, placeholder: placeholder || "JSON", ...common }, read, write);
}

/**
 * Several names, one per line. Known names can also be chosen.
 * @param {Attributes} common @param {(() => string[])|undefined} choices @param {() => any} read
 * @param {(next: any) => void} write
 */
function names(common, choices, read, write) {
  const chosen = () => /** @type {string[]} */ (read() ?? []);
  const set = (/** @type {string[]} */ next) => write(next.length ? next : undefined);
  const onchange = (/** @type {any} */ { target }) =>
    set(target.value.split("\n").map((/** @type {string} */ one) => one.trim()).filter(Boolean));
  const toggle = (/** @type {string} */ name) =>
    set(chosen().includes(name) ? chosen().filter((one) => one !== name) : [...chosen(), name]);
  return h("div.stack",
    h("textarea", { ...common, rows: 2, placeholder: "one per line", value: () => chosen().join("\n"), onchange }),
    () => choices?.().length ? chips("all, unless some are chosen",
      choices().map((name) => chip(name, () => chosen().includes(name), () => toggle(name)))) : null);
}

/**
 * A value as JSON. `check` returns another problem of the value, or "".
 * @param {Attributes} attributes @param {() => any} read @param {(next: any) => void} write
 * @param {(value: any) => string} [check]
 */
function jsonArea(attributes, read, write, check = () => "") {
  const notice = signal("");
  const area = h("textarea.code", { spellcheck: "false", ...attributes, oninput: () => {
    const { value, problem } = parse(area.value);
    notice.value = problem || check(value);
    if (!notice.value) write(value);
  } });
  effect(() => {
    const now = read();
    const { value, problem } = parse(area.value);
    if (problem || JSON.stringify(value) !== JSON.stringify(now))
      area.value = now === undefined || now === null ? "" : JSON.stringify(now, null, 2);
  });
  return h("div", area, () => (notice.value ? h("p.error", notice.value) : null));
}

/** The whole value as JSON, in step with the form. @param {Form["value"]} value @param {string} label */
export const jsonView = (value, label) => h("div.stack",
  jsonArea({ rows: 14, "aria-label": label }, () => value.value, (next) => (value.value = next ?? {}), (next) =>
    next === undefined || (typeof next === "object" && !Array.isArray(next)) ? "" : "this is no JSON object"),
  h("p.small.faint", () => bytes(JSON.stringify(value.value).length)));
