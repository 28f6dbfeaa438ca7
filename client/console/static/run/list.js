// @ts-check
/**
 * A windowed list: of thousands of rows of any height, only those in view (and a few around them) are in the document.
 * The rows flow normally between two paddings, which replace the rows that are not drawn. A ResizeObserver measures
 * them before each paint, and the scroll position is corrected by what grew above the anchor: the row under the
 * pointer, or else the first row in view. So nothing moves under the pointer. At its end the list follows new rows.
 */

/** Rows within this distance of the view are drawn. */
const MARGIN_PX = 400;
/** A list that is scrolled to within this distance of its end follows the end. */
const END_PX = 24;
/** After this many rows were measured, their average is the estimate for all others. */
const MEASURED_ROWS = 12;
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

/** @typedef {number | string} Key */

/**
 * @typedef {object} ListOptions
 * @property {HTMLElement} scroller The element that scrolls. It holds `body`, and maybe more after it.
 * @property {HTMLElement} body The `ol` for the rows.
 * @property {(key: Key) => HTMLElement} render Return the `li` of a row.
 * @property {HTMLElement} [after] What follows the rows. The list follows its end.
 * @property {number} estimate Pixels of a row that was never drawn.
 * @property {(first: number, last: number) => void} [onWindow] The indexes of the drawn rows, whenever they change.
 * @property {(following: boolean) => void} [onFollow] Whether the list follows its end, whenever that changes.
 * @property {boolean} [follow] Begin at the end.
 */

export class WindowedList {
  /** @type {Key[]} */ keys = [];
  /** @type {Map<Key, number>} */ indexes = new Map();
  /** Measured heights. @type {Map<Key, number>} */ heights = new Map();
  /** The top of each row, and the end of the last one. @type {number[]} */ tops = [0];
  /** The drawn rows. @type {Map<Key, HTMLElement>} */ drawn = new Map();
  /** @type {WeakMap<Element, Key>} */ keyOf = new WeakMap();
  /** The anchor, and its distance from the top of the view. @type {{key: Key, y: number} | null} */ held = null;
  /** @type {Key | null} */ pointerKey = null;
  /** The indexes of the drawn rows. */ first = 0;
  last = -1;
  /** Scroll positions: the latest, and the end that was scrolled to. */ lastTop = 0;
  pinnedTop = 0;
  drawAll = false;
  isPressed = false;
  isEstimated = false;
  isUnmeasured = false;

  /** @param {ListOptions} options */
  constructor(options) {
    this.options = options;
    this.scroller = options.scroller;
    this.body = options.body;
    this.estimate = options.estimate;
    this.following = options.follow ?? false;
    this.observer = new ResizeObserver((entries) => this.#measure(entries));
    this.observer.observe(this.scroller);
    if (options.after) this.observer.observe(options.after);
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.body.addEventListener("pointerover", (event) => this.#point(event.target));
    this.body.addEventListener("pointerleave", () => this.#point(null));
    this.scroller.addEventListener("pointerdown", () => (this.isPressed = true), { passive: true });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => this.#release());
    addEventListener("beforeprint", () => this.showAll(true));
    addEventListener("afterprint", () => this.showAll(false));
  }

  /** Show these rows. Rows that stay are not drawn again. @param {Key[]} keys */
  setKeys(keys) {
    this.#holdAnchor();
    this.keys = keys;
    this.indexes = new Map(keys.map((key, index) => [key, index]));
    this.#layOut();
    const index = this.held ? this.indexes.get(this.held.key) : undefined;
    const top = this.held && index !== undefined ? this.#top(index) - this.held.y : undefined;
    this.#draw(top);
    if (top !== undefined) this.#scroll(this.#bodyTop() + top);
    this.#restore();
  }

  /** Draw a row again, if it is drawn. @param {Key} key */
  refresh(key) {
    const old = this.drawn.get(key);
    if (!old) return;
    const focused = [old, ...old.querySelectorAll(FOCUSABLE)].indexOf(/** @type {Element} */ (document.activeElement));
    const row = this.#make(key);
    this.observer.unobserve(old);
    old.replaceWith(row);
    const again = [row, ...row.querySelectorAll(FOCUSABLE)][focused];
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
  }

  /** Draw all rows again, after a change of what rows show. */
  refreshAll = () => [...this.drawn.keys()].forEach((key) => this.refresh(key));

  /** @param {boolean} all Draw all rows, for printing. */
  showAll = (all) => ((this.drawAll = all), this.#draw());

  toEnd() {
    this.#setFollowing(true);
    this.#draw();
    this.#pin();
  }

  stopFollowing = () => this.#setFollowing(false);

  /** Bring a row to the top of the view. @param {Key} key @returns {HTMLElement | undefined} The row. */
  scrollTo(key) {
    const index = this.indexes.get(key);
    if (index === undefined) return undefined;
    this.#setFollowing(false);
    this.#scroll(this.#bodyTop() + this.#top(index) - 8);
    this.pointerKey = null;
    this.held = { key, y: 8 };
    this.#draw();
    return this.drawn.get(key);
  }

  #layOut() {
    if (!this.isEstimated && this.heights.size >= MEASURED_ROWS) {
      this.isEstimated = true;
      this.estimate = [...this.heights.values()].reduce((sum, height) => sum + height, 0) / this.heights.size;
    }
    const tops = new Array(this.keys.length + 1);
    let top = 0;
    this.keys.forEach((key, index) => {
      tops[index] = top;
      top += this.heights.get(key) ?? this.estimate;
    });
    tops[this.keys.length] = top;
    this.tops = tops;
  }

  /** The distance of the rows from the beginning of what scrolls. */
  #bodyTop = () => this.#offset(this.body) + this.scroller.scrollTop;

  /** @param {number} y @returns {number} The index of the row at this distance from the first. */
  #indexAt(y) {
    let [low, high] = [0, this.keys.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#top(middle) <= y) low = middle;
      else high = middle - 1;
    }
    return Math.max(low, 0);
  }

  /** @param {number} [wanted] The distance of the view from the first row, if it is not scrolled there yet. */
  #draw(wanted) {
    const { keys, body, scroller } = this;
    if (!scroller.clientHeight && !this.drawAll) return; // it is hidden; the observer reports when it is shown
    const isAtEnd = this.following && !this.isPressed;
    const top = isAtEnd ? this.#total() - scroller.clientHeight : (wanted ?? scroller.scrollTop - this.#bodyTop());
    const first = this.drawAll ? 0 : this.#indexAt(top - MARGIN_PX);
    const last = this.drawAll ? keys.length - 1
                              : Math.min(keys.length - 1, this.#indexAt(top + scroller.clientHeight + MARGIN_PX));
    const inView = new Set(keys.slice(first, last + 1));
    for (const [key, row] of this.drawn) if (!inView.has(key)) this.#drop(key, row);
    const before = [this.first, this.last];
    [this.first, this.last] = [first, last];
    this.#pad();
    let next = body.firstElementChild;
    for (const key of inView) {
      const row = this.drawn.get(key) ?? this.#make(key);
      this.#place(row, key);
      if (row === next) next = next.nextElementSibling;
      else body.insertBefore(row, next);
    }
    if (this.held === null) {
      const index = this.#indexAt(top);
      const key = keys[index];
      if (key !== undefined) this.held = { key, y: this.#top(index) - top };
    }
    if (before[0] !== first || before[1] !== last) this.options.onWindow?.(first, last);
  }

  #pad() {
    this.body.style.paddingTop = `${this.#top(this.first)}px`;
    this.body.style.paddingBottom = `${Math.max(0, this.#total() - this.#top(this.last + 1))}px`;
  }

  /** @param {number} index */
  #top = (index) => this.tops[index] ?? 0;

  #total = () => this.#top(this.keys.length);

  /** @param {Key} key */
  #make(key) {
    const row = this.options.render(key);
    this.drawn.set(key, row);
    this.isUnmeasured = true;
    this.keyOf.set(row, key);
    this.observer.observe(row);
    this.#place(row, key);
    return row;
  }

  /** @param {HTMLElement} row @param {Key} key */
  #place(row, key) {
    [row.ariaSetSize, row.ariaPosInSet] = [String(this.keys.length), String((this.indexes.get(key) ?? 0) + 1)];
  }

  /** @param {Key} key @param {HTMLElement} row */
  #drop(key, row) {
    if (row.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
    this.observer.unobserve(row);
    this.drawn.delete(key);
    row.remove();
  }

  /** @param {ResizeObserverEntry[]} entries */
  #measure(entries) {
    if (!this.scroller.clientHeight) return;
    const scrolled = this.#noteScroll();
    if (this.held) this.held.y -= scrolled;
    let isChanged = false;
    for (const entry of entries) {
      const key = this.keyOf.get(entry.target);
      if (key === undefined || this.drawn.get(key) !== entry.target) continue;
      const height = entry.borderBoxSize[0]?.blockSize ?? 0;
      if (this.heights.get(key) === height) continue;
      this.heights.set(key, height);
      isChanged = true;
    }
    if (isChanged) {
      this.#layOut();
      this.#pad();
      this.#noteScroll(); // the browser keeps it within a list that has become shorter
    }
    this.isUnmeasured = false;
    this.#restore();
    // Rows that come into view by a change of height are within the margin, so they may wait for the next frame.
    requestAnimationFrame(() => this.#draw());
  }

  #scrolled() {
    const { scroller } = this;
    const gap = scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop;
    if (this.following && gap > END_PX && scroller.scrollTop < this.pinnedTop) this.#setFollowing(false);
    else if (!this.following && gap <= END_PX) this.#setFollowing(true);
    if (this.held && this.isUnmeasured) this.held.y -= this.#noteScroll();
    else this.#holdAnchor();
    this.#draw();
  }

  /** Return by how much it has scrolled since the last note. */
  #noteScroll() {
    const scrolled = this.scroller.scrollTop - this.lastTop;
    this.lastTop += scrolled;
    return scrolled;
  }

  /** @param {number} top */
  #scroll = (top) => ((this.scroller.scrollTop = top), this.#noteScroll());

  #pin = () => (this.#scroll(this.scroller.scrollHeight), (this.pinnedTop = this.scroller.scrollTop));

  #release() {
    if (this.isPressed && this.following) queueMicrotask(() => this.toEnd());
    this.isPressed = false;
  }

  /** @param {boolean} following */
  #setFollowing(following) {
    if (this.following === following) return;
    this.following = following;
    this.options.onFollow?.(following);
  }

  /** @param {EventTarget | null} target What the pointer is over. */
  #point(target) {
    let row = target instanceof Element ? target : null;
    while (row && !this.keyOf.has(row)) row = row.parentElement;
    this.pointerKey = row ? (this.keyOf.get(row) ?? null) : null;
    if (!this.isUnmeasured) this.#holdAnchor();
  }

  /** Store the row that must not move, and its place. Store null if the rows in view are not drawn yet. */
  #holdAnchor() {
    const { pointerKey } = this;
    this.#noteScroll();
    const isPointed = pointerKey !== null && this.drawn.has(pointerKey);
    const key = isPointed ? pointerKey : this.keys[this.#indexAt(this.scroller.scrollTop - this.#bodyTop())];
    const row = key === undefined ? undefined : this.drawn.get(key);
    this.held = row && key !== undefined ? { key, y: this.#offset(row) } : null;
  }

  /** @param {HTMLElement} row */
  #offset = (row) => row.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;

  #restore() {
    if (this.following && !this.isPressed) return void this.#pin();
    const row = this.held ? this.drawn.get(this.held.key) : undefined;
    if (!row || !this.held) return;
    const moved = this.#offset(row) - this.held.y;
    if (Math.abs(moved) >= 1) this.#scroll(this.scroller.scrollTop + moved);
  }
}
