// @ts-check
/**
 * Signals, and the construction of elements. No text ever becomes markup.
 *
 *     const n = signal(0);   n.value += 1;   n.peek() reads without a dependency
 *     const twice = computed(() => n.value * 2);
 *     effect(() => console.log(n.value));          runs again after each change; returns a function to end it
 *     cleanup(() => …)                             runs when the enclosing effect or part is made again or ends
 *     batch(() => { … })                           effects run once after it;   untracked(() => …)
 *     stable(() => rows.value.length)              a computed value that changes only when its JSON does
 *     onChange(() => n.value, () => …)             runs after each change, but not at the start
 *     h("p.soft.small", { onclick: f, hidden: () => n.value > 3, style: { width: "3px" } }, "text ", () => n.value)
 *     h("p", "text")                               attributes may be left out; children may be arrays, null and false
 *     s("path", { d: "…" })                        the same for SVG
 *     each(() => rows.value, (row) => row.id, (row) => h("li", () => row.value.name))   `row` is a signal
 *     mount(host, () => content)                   replaces the content of the host; returns a function to end it
 * A function as attribute or child is a part that follows its signals.
 */
/**
 * @typedef {HTMLElementTagNameMap} Tags
 * @typedef {Node|string|number|boolean|null|undefined|Signal<any>|(() => any)|any[]} Child
 * @typedef {Record<string, any>} Attributes
 * @typedef {{run: () => void, sources: Set<Set<Scope>>, parts: Scope[], ends: (() => void)[]}} Scope
 */

/** Control and format characters, separators and tags, except those that are visible or white space. */
const HIDDEN =
  /(?![\t\n\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u2065\u{e0000}-\u{e0fff}]/gu;

/** Replace control characters and bidi overrides by escapes. `h` does so in all text. @param {string} text */
export const visible = (text) =>
  text.replace(HIDDEN, (hidden) => `\\u{${/** @type {number} */ (hidden.codePointAt(0)).toString(16)}}`);

/** @type {Scope|null} */ let reader = null;
/** @type {Scope|null} */ let owner = null;
/** @type {Set<Scope>} */ const due = new Set();
let held = 0;

/** @template T */
export class Signal {
  #value;
  /** @type {Set<Scope>} */ #readers = new Set();
  /** @param {T} value */
  constructor(value) {
    this.#value = value;
  }
  get value() {
    if (reader) {
      this.#readers.add(reader);
      reader.sources.add(this.#readers);
    }
    return this.#value;
  }
  set value(next) {
    if (Object.is(next, this.#value)) return;
    this.#value = next;
    for (const one of this.#readers) due.add(one);
    if (!held) flush();
  }
  peek() {
    return this.#value;
  }
}

/** @template T @param {T} value @returns {Signal<T>} */
export const signal = (value) => new Signal(value);

function flush() {
  held++;
  try {
    for (const scope of due) {
      due.delete(scope);
      scope.run();
    }
  } finally {
    held--;
  }
}

/** @template T @param {() => T} work @returns {T} */
export function batch(work) {
  held++;
  try {
    return work();
  } finally {
    if (!--held) flush();
  }
}

/** @param {Scope} scope */
function clear(scope) {
  for (const part of scope.parts.splice(0)) end(part);
  for (const work of scope.ends.splice(0)) work();
  for (const readers of scope.sources) readers.delete(scope);
  scope.sources.clear();
}

/** @param {Scope} scope */
function end(scope) {
  clear(scope);
  due.delete(scope);
  scope.run = () => {};
}

/** @template T @param {Scope|null} nextReader @param {Scope|null} nextOwner @param {() => T} work @returns {T} */
function within(nextReader, nextOwner, work) {
  const before = /** @type {const} */ ([reader, owner]);
  [reader, owner] = [nextReader, nextOwner];
  try {
    return work();
  } finally {
    [reader, owner] = before;
  }
}

/** @param {() => void} run @returns {Scope} */
function scopeOf(run) {
  const scope = { run, sources: new Set(), parts: [], ends: [] };
  owner?.parts.push(scope);
  return scope;
}

/** @param {() => void} work @returns {() => void} */
export function effect(work) {
  const scope = scopeOf(() => {
    clear(scope);
    within(scope, scope, work);
  });
  scope.run();
  return () => end(scope);
}

/** @template T @param {() => T} work @returns {Signal<T>} */
export function computed(work) {
  const result = signal(/** @type {any} */ (undefined));
  effect(() => void (result.value = work()));
  return result;
}

/** @template T @param {() => T} work @returns {Signal<T>} */
export function stable(work) {
  const result = signal(/** @type {any} */ (undefined));
  let before = "";
  effect(() => {
    const value = work();
    const now = JSON.stringify(value);
    if (now !== before) result.value = value;
    before = now;
  });
  return result;
}

/** @template T @param {() => T} work @returns {T} */
export const untracked = (work) => within(null, owner, work);

/** Do `work` after each change, but not at the start. @param {() => unknown} read @param {() => void} work */
export function onChange(read, work) {
  let isFirst = true;
  effect(() => {
    read();
    if (!isFirst) untracked(work);
    isFirst = false;
  });
}

/** @param {() => void} work */
export const cleanup = (work) => void owner?.ends.push(work);

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "selected", "open", "indeterminate", "disabled"]);
const SHOWN = new Set(["title", "aria-label", "placeholder", "alt", "data-exact"]);
const ADDRESS = /^(\/(?!\/)|[#?]|https?:|mailto:)/i;

/** @param {any} element @param {string} name @param {any} value */
function setAttribute(element, name, value) {
  if (name === "style") {
    for (const [property, one] of Object.entries(value)) element.style.setProperty(property, String(one));
  } else if (PROPERTIES.has(name) && name in element) {
    const next = name === "value" ? String(value ?? "") : (value ?? "");
    if (element[name] !== next) element[name] = next; // the same value would move the cursor
  } else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (name === "href" && !ADDRESS.test(String(value))) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? visible(String(value)) : String(value));
}

/** @param {any} value */
const isAttributes = (value) => value && Object.getPrototypeOf(value) === Object.prototype;

/** @param {string} tag @param {any[]} parts @param {(name: string) => Element} make @returns {any} */
function build(tag, parts, make) {
  const [name = "", ...classes] = tag.split(".");
  const element = make(name);
  const attributes = isAttributes(parts[0]) ? parts.shift() : {};
  insert(element, parts); // first, since the value of a select is one of its options
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    const set = (/** @type {any} */ now) =>
      setAttribute(element, name, name === "class" ? [...classes, now].filter(Boolean).join(" ") : now);
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "function") effect(() => set(value()));
    else if (value instanceof Signal) effect(() => set(value.value));
    else set(value);
  }
  return element;
}

/**
 * @template {string} T @param {T} tag With its classes. @param {...(Child|Attributes)} parts
 * @returns {T extends `${infer Tag extends keyof Tags}.${string}` ? Tags[Tag] : Tags[T & keyof Tags]}
 */
export const h = (tag, ...parts) => build(tag, parts, (name) => document.createElement(name));

/** @param {string} tag @param {...(Child|Attributes)} parts @returns {SVGElement} */
export const s = (tag, ...parts) => build(tag, parts, (name) => document.createElementNS(SVG, name));

/** @param {Node} parent @param {Child} child */
function insert(parent, child) {
  if (child === null || child === undefined || typeof child === "boolean") return;
  if (Array.isArray(child)) for (const one of child) insert(parent, one);
  else if (child instanceof Node) parent.appendChild(child);
  else if (child instanceof Signal) part(parent, () => child.value);
  else if (typeof child === "function") part(parent, child);
  else parent.appendChild(document.createTextNode(visible(String(child))));
}

/** Two empty texts enclose a part that changes. @param {Node} parent @param {() => Child} content */
function part(parent, content) {
  const [from, to] = [document.createTextNode(""), document.createTextNode("")];
  parent.appendChild(from);
  parent.appendChild(to);
  effect(() => {
    const fresh = document.createDocumentFragment();
    insert(fresh, content());
    const only = fresh.childNodes.length === 1 && fresh.firstChild;
    const old = from.nextSibling;
    if (only instanceof Text && old instanceof Text && old !== to && old.nextSibling === to) {
      if (old.data !== only.data) old.data = only.data; // keeps a selection, and moves nothing
      return;
    }
    while (from.nextSibling && from.nextSibling !== to) from.nextSibling.remove();
    to.parentNode?.insertBefore(fresh, to);
  });
}

/**
 * A list that keeps the element of each key, so that focus and scroll positions stay.
 * @template T @param {() => readonly T[]} list @param {(item: T) => string|number} key
 * @param {(item: Signal<T>) => Element} render
 */
export function each(list, key, render) {
  const fresh = document.createDocumentFragment();
  const to = fresh.appendChild(document.createTextNode(""));
  /** @type {Map<string|number, {item: Signal<T>, element: Element, scope: Scope}>} */
  let shown = new Map();
  const home = owner;
  effect(() => {
    const items = list();
    untracked(() => {
      /** @type {typeof shown} */ const next = new Map();
      for (const item of items) {
        const id = key(item);
        const old = shown.get(id);
        if (old) batch(() => (old.item.value = item));
        const entry = old ?? within(null, home, () => {
          const scope = scopeOf(() => {});
          const own = signal(item);
          return { item: own, element: within(null, scope, () => render(own)), scope };
        });
        next.set(id, entry);
      }
      for (const [id, entry] of shown) {
        if (next.has(id)) continue;
        end(entry.scope);
        home?.parts.splice(home.parts.indexOf(entry.scope), 1);
        entry.element.remove();
      }
      /** @type {ChildNode} */ let place = to;
      for (const entry of [...next.values()].reverse()) {
        if (entry.element.nextSibling !== place) to.parentNode?.insertBefore(entry.element, place);
        place = entry.element;
      }
      shown = next;
    });
  });
  return fresh;
}

/** @param {Element} host @param {() => Child} content @returns {() => void} */
export function mount(host, content) {
  const scope = scopeOf(() => {});
  host.replaceChildren();
  within(null, scope, () => insert(host, content()));
  return () => {
    end(scope);
    host.replaceChildren();
  };
}
