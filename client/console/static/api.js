// @ts-check
/**
 * The public interface `/api/v1`, as a page uses it.
 *
 *     await get("/runs?waiting=approval")     uses the answer in the shell once, and fetches it later
 *     await post("/runs", body, {key})        with the CSRF header, and an Idempotency-Key if one is given
 *     me                                      the visitor: {name, roles, read_only, …};   may("approver")
 *     resource("/runs/x")                     a request: signals {data, problem}, reload(), more("?next=…")
 *     sendAction(run, "approve", {…})         a signal {state, detail}: sending, received, applied, refused, failed
 * All failures are a `Problem` with `status` (0: no answer), `detail` for people, and `errors` by field.
 */
import { batch, signal } from "./ui.js";
import { words } from "./format.js";
import { onEvent, subscribe } from "./stream.js";

/** @typedef {{where: string, detail: string}} FieldError */
/** @typedef {{state: "sending"|"received"|"applied"|"refused"|"failed", detail: string}} Progress */

export class Problem extends Error {
  /** @param {number} status @param {string} detail @param {FieldError[]} [errors] */
  constructor(status, detail, errors = []) {
    super(detail);
    this.status = status;
    this.detail = detail;
    this.errors = errors;
  }
}

/** @type {Record<string, any>} */
const first = JSON.parse(document.getElementById("first")?.textContent || "{}");

/**
 * @typedef {object} Visitor
 * @property {string} name
 * @property {string[]} roles
 * @property {boolean} read_only
 * @property {string|null} ui_url
 */
/** @type {Visitor} */
export const me = first["/me"] ?? { name: "", roles: [], read_only: true, ui_url: null };

/** @param {string} role */
export const may = (role) => !me.read_only && me.roles.includes(role);

/**
 * @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers]
 * @returns {Promise<any>}
 */
async function send(method, path, body, headers = {}) {
  /** @type {Response} */ let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method,
      headers: method === "GET" ? headers : { "Content-Type": "application/json", "X-Orga-Console": "1", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "the console does not answer. Start it with `orga console` if it has ended");
  }
  const type = response.headers.get("content-type") ?? "";
  const answer = type.includes("json") ? await response.json() : await response.text();
  if (response.ok) return answer;
  throw new Problem(response.status, answer?.detail ?? `the console answers ${response.status}`, answer?.errors ?? []);
}

/** @template {string} P @param {P} path @returns {Promise<import("orga-api").Answer<P>>} */
export async function get(path) {
  const known = first[path];
  delete first[path];
  return known ?? send("GET", path);
}

/** @param {string} path @param {unknown} body @param {{key?: string}} [options] */
export const post = (path, body, { key } = {}) => send("POST", path, body, key ? { "Idempotency-Key": key } : {});

/** @param {string} path @param {unknown} body */
export const put = (path, body) => send("PUT", path, body);

/** @param {unknown} error */
export const asProblem = (error) => (error instanceof Problem ? error : new Problem(0, String(error)));

/** @template {string} P @param {P|(() => P)} path */
export function resource(path) {
  const data = signal(/** @type {import("orga-api").Answer<P>|null} */ (null));
  const problem = signal(/** @type {Problem|null} */ (null));
  let latest = 0;
  /** @param {string} query @param {(answer: any) => any} take */
  const read = async (query, take) => {
    const turn = ++latest;
    const asked = get(/** @type {P} */ ((typeof path === "string" ? path : path()) + query));
    const [answer, failure] = await asked.then((found) => [found, null], (error) => [null, asProblem(error)]);
    if (turn !== latest) return;
    batch(() => {
      if (!failure) data.value = take(answer);
      problem.value = failure;
    });
  };
  const reload = () => read("", (answer) => answer);
  /** Read the next page, whose list is added to what is known. @param {string} query @param {string} [list] */
  const more = (query, list = "items") => {
    const known = /** @type {any} */ (data.peek());
    return read(query, (page) => ({ ...page, [list]: [...known[list], ...page[list]] }));
  };
  void reload();
  return { data, problem, reload, more };
}
/** @template T @typedef {import("./ui.js").Signal<T>} Signal */
/**
 * @template T
 * @typedef {{data: Signal<T|null>, problem: Signal<Problem|null>, reload: () => Promise<void>}} Resource
 */

/** Actions that take effect later, which an event reports. The run answers all others at once. */
const SIGNALS = new Set(["pause", "resume", "steer", "add_context", "abort", "override_step"]);

/** The progress of each action that this page has sent, by its id. @type {Map<string, Signal<Progress>>} */
const sent = new Map();
onEvent("action", (data) => {
  const progress = sent.get(data.id);
  if (progress) progress.value = progressOf(data);
});

/**
 * @param {{state: string, detail?: string|null, phase?: string|null, iteration?: number|null}} answer
 * @returns {Progress}
 */
function progressOf({ state, detail, phase, iteration }) {
  if (state === "refused") return { state, detail: `refused: ${detail}` };
  if (state !== "applied")
    return { state: "received", detail: detail || "received: it takes effect at the run's next phase" };
  if (phase) return { state, detail: `applied in ${words(phase)} of iteration ${iteration}` };
  return { state, detail: detail ? `applied${detail.startsWith("in ") ? "" : ":"} ${detail}` : "applied" };
}

/**
 * Send one action of a person. After a lost connection it is sent again under its id, so it counts once.
 * @param {string} run @param {string} kind @param {Record<string, unknown>} [values]
 * @returns {Signal<Progress> & {id: string}}
 */
export function sendAction(run, kind, values = {}) {
  const id = crypto.randomUUID();
  const progress = Object.assign(signal(/** @type {Progress} */ ({ state: "sending", detail: "sending" })), { id });
  sent.set(id, progress);
  if (SIGNALS.has(kind)) setTimeout(subscribe([`run:${run}`]), 120_000);
  const attempt = async (left = 4) => {
    try {
      const answer = await post(`/runs/${encodeURIComponent(run)}/actions`, { id, kind, ...values });
      if (progress.peek().state === "sending") progress.value = progressOf(answer);
    } catch (error) {
      const { status, detail } = asProblem(error);
      if ((status === 0 || status === 503) && left) {
        progress.value = { state: "sending", detail: "the console does not answer; it is sent again" };
        setTimeout(() => void attempt(left - 1), 1500);
      } else progress.value = { state: status === 409 ? "refused" : "failed", detail };
    }
  };
  void attempt();
  return progress;
}
