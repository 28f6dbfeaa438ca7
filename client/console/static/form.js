// @ts-check
/**
 * A form from a JSON Schema. It edits one value, a signal, which others may change too.
 *
 *     schemaFields({ schema, value, problems, groups, choices })
 * An empty field removes its key, so a default stays a default. A problem stands at the field that it names.
 */
import { DASH, bytes, capital, words } from "./format.js";
import { computed, effect, h, signal } from "./ui.js";

/** @typedef {import("./ui.js").Signal<any>} Any */
/** @typedef {{where: string, detail: string}} FieldError */
/**
 * @typedef {object} Form
 * @property {any} schema
 * @property {Any} value
 * @property {() => FieldError[]} problems
 * @property {Record<string, () => string[]>} choices suggestions for a path, such as the names of agents
 * @property {Set<string>} [long] paths of long texts
 * @property {Set<string>} [skip] paths that are shown elsewhere
 */

/** @param {any} value @param {string[]} path @returns {any} */
export const valueAt = (value, path) => path.reduce((found, key) => found?.[key], value);

/** Return a copy with another value at the path. `undefined` removes the key. @param {any} value @param {string[]} path @param {any} next @returns {any} */
export function withValue(value, [key = "", ...rest], next) {
  const inner = rest.length ? withValue(value?.[key], rest, next) : next;
  const copy = { ...value };
  if (inner === undefined || (rest.length && inner && !Object.keys(inner).length)) delete copy[key];
  else copy[key] = inner;
  return copy;
}

/** Follow references, and take the one branch that is not null. @param {any} root @param {any} schema @returns {any} */
export function resolved(root, schema) {
  if (schema?.$ref) return resolved(root, { ...valueAt(root, schema.$ref.slice(2).split("/")), ...schema, $ref: undefined });
  const branches = schema?.anyOf?.filter((/** @type {any} */ one) => one.type !== "null");
  if (branches?.length === 1) return resolved(root, { ...schema, ...branches[0], anyOf: undefined, nullable: true });
  return schema ?? {};
}

let made = 0;

/** The fields at these paths. @param {Form} form @param {string[][]} paths */
export const fields = (form, paths) => paths.map((path) => field(form, path));

/** The paths of all keys of an object. @param {Form} form @param {string[]} [path] */
export function keysOf(form, path = []) {
  const schema = path.reduce((found, key) => resolved(form.schema, resolved(form.schema, found).properties?.[key]), form.schema);
  return Object.keys(resolved(form.schema, schema).properties ?? {}).map((key) => [...path, key]);
}

/** @param {Form} form @param {string[]} path @returns {HTMLElement|null} */
export function field(form, path) {
  const schema = path.reduce((found, key) => resolved(form.schema, resolved(form.schema, found).properties?.[key]), form.schema);
  if (!Object.keys(schema).length) return null;
  const id = `field-${++made}`;
  const where = path.join(".");
  const problems = () => form.problems().filter((one) => one.where === where || (one.where.startsWith(`${where}.`) && !schema.properties));
  if (schema.properties) {
    const inner = h("details.group", { open: () => problems().length > 0 }, h("summary", label(path)), hint(schema), h("div.fields", fields(form, keysOf(form, path).filter((one) => !form.skip?.has(one.join("."))))));
    return inner;
  }
  const write = (/** @type {any} */ next) => (form.value.value = withValue(form.value.peek(), path, next));
  const read = () => valueAt(form.value.value, path);
  const common = { id, "aria-describedby": `${id}-hint`, "aria-invalid": () => String(problems().length > 0) };
  const [input, notice] = control(form, where, schema, common, read, write);
  return h("div", { class: schema.type === "boolean" ? "field inline" : "field", "data-where": where },
    h("label", { for: id }, label(path)), input,
    h("div.small.soft", { id: `${id}-hint` }, hint(schema), notice ? () => (notice.value ? h("p.error", notice.value) : null) : null,
      () => problems().map((one) => h("p.error", one.detail))));
}

/** @param {string[]} path */
const label = (path) => capital(path.at(-1)).replace(/ (s|ms)$/, " ($1)").replace(/ usd$/, " (USD)");

/** @param {any} schema */
function hint(schema) {
  const range = [schema.minimum > 1 && `at least ${schema.minimum}`, schema.maximum !== undefined && schema.maximum < 1e6 && `at most ${schema.maximum}`].filter(Boolean).join(", ");
  const text = [schema.description, range].filter(Boolean).join(" ");
  return text ? h("p", text) : null;
}

/** @param {any} schema */
const defaultText = (schema) => (schema.default === undefined || schema.default === "" ? "" : schema.default === null ? "none" : typeof schema.default === "object" ? "" : `${schema.default}`);

/**
 * @param {Form} form @param {string} where @param {any} schema @param {Record<string, any>} common @param {() => any} read @param {(next: any) => void} write
 * @returns {[HTMLElement, Any|null]} the element, and what is wrong with its text
 */
function control(form, where, schema, common, read, write) {
  const placeholder = defaultText(schema);
  const choices = form.choices[where];
  if (schema.enum) {
    const options = [h("option", { value: "" }, placeholder ? `${words(placeholder)} (default)` : DASH), ...schema.enum.map((/** @type {string} */ one) => h("option", { value: one }, words(one)))];
    const select = h("select", { ...common, value: () => read() ?? "", onchange: () => write(select.value || undefined) }, options);
    return [select, null];
  }
  if (schema.type === "boolean") {
    const box = h("input", { ...common, type: "checkbox", checked: () => read() ?? schema.default ?? false, onchange: () => write(box.checked === (schema.default ?? false) ? undefined : box.checked) });
    return [box, null];
  }
  if (schema.type === "integer" || schema.type === "number") {
    const number = h("input", { ...common, type: "number", inputmode: "decimal", step: schema.type === "integer" ? 1 : "any", min: schema.minimum, max: schema.maximum, placeholder, value: () => read() ?? "", oninput: () => number.validity.badInput || write(number.value === "" ? undefined : Number(number.value)) });
    return [number, null];
  }
  if (schema.type === "string" && form.long?.has(where)) {
    const area = h("textarea", { ...common, rows: where.includes(".") ? 3 : 5, placeholder, value: () => read() ?? "", oninput: () => write(area.value || undefined) });
    return [area, null];
  }
  if (schema.type === "string") {
    const list = choices ? h("datalist", { id: `${common.id}-list` }, () => choices().map((value) => h("option", { value }))) : null;
    const input = h("input", { ...common, list: list?.id, placeholder, maxlength: schema.maxLength, value: () => read() ?? "", oninput: () => write(input.value || undefined) });
    return [list ? h("div", input, list) : input, null];
  }
  if (schema.type === "array" && resolved(form.schema, schema.items).type === "string" && !schema.items.enum) return names(common, choices, read, write);
  return json(common, placeholder, read, write);
}

/** Several names: boxes where they are known, one a line otherwise. @param {Record<string, any>} common @param {(() => string[])|undefined} choices @param {() => any} read @param {(next: any) => void} write @returns {[HTMLElement, null]} */
function names(common, choices, read, write) {
  const known = computed(() => choices?.() ?? []);
  const area = h("textarea", { ...common, rows: 2, placeholder: "one a line", value: () => (read() ?? []).join("\n"), onchange: () => write(area.value.trim() ? area.value.split("\n").map((one) => one.trim()).filter(Boolean) : undefined) });
  const boxes = () => h("div.chips", { role: "group", "aria-label": "all, unless some are chosen" }, known.value.map((name) =>
    h("button", { type: "button", class: "chip", "aria-pressed": () => String((read() ?? []).includes(name)), onclick: () => {
      const now = read() ?? [];
      const next = now.includes(name) ? now.filter((/** @type {string} */ one) => one !== name) : [...now, name];
      write(next.length ? next : undefined);
    } }, name)));
  return [h("div.stack", area, () => (known.value.length ? boxes() : null)), null];
}

/** Any other value, as JSON. @param {Record<string, any>} common @param {string} placeholder @param {() => any} read @param {(next: any) => void} write @returns {[HTMLElement, Any]} */
function json(common, placeholder, read, write) {
  const notice = signal("");
  const area = h("textarea", { ...common, class: "code", rows: 2, spellcheck: "false", placeholder: placeholder || "JSON", oninput: () => {
    const parsed = parse(area.value);
    notice.value = parsed.problem;
    if (!parsed.problem) write(parsed.value);
  } });
  effect(() => {
    const now = read();
    const parsed = parse(area.value);
    if (parsed.problem || JSON.stringify(parsed.value) !== JSON.stringify(now)) area.value = now === undefined ? "" : JSON.stringify(now, null, 2);
  });
  return [area, notice];
}

/** @param {string} text @returns {{value: any, problem: string}} */
export function parse(text) {
  if (!text.trim()) return { value: undefined, problem: "" };
  try {
    return { value: JSON.parse(text), problem: "" };
  } catch (error) {
    return { value: undefined, problem: `this is no JSON: ${/** @type {Error} */ (error).message}` };
  }
}

/** The whole value as JSON, in step with the form. @param {Any} value @param {string} label */
export function jsonView(value, label) {
  const notice = signal("");
  const area = h("textarea.code", { rows: 14, spellcheck: "false", "aria-label": label, oninput: () => {
    const parsed = parse(area.value);
    notice.value = parsed.problem || (parsed.value === undefined || (typeof parsed.value === "object" && !Array.isArray(parsed.value)) ? "" : "this is no JSON object");
    if (!notice.value) value.value = parsed.value ?? {};
  } });
  effect(() => {
    const now = value.value;
    if (JSON.stringify(parse(area.value).value ?? {}) !== JSON.stringify(now)) area.value = JSON.stringify(now, null, 2);
  });
  return h("div.stack", area, () => (notice.value ? h("p.error", notice.value) : h("p.small.faint", bytes(JSON.stringify(value.value).length))));
}
