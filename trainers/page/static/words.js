// A text of colored words beside a card. One word at a time is a tab stop, arrow keys move, and the card shows what is
// known about the word under the pointer or the focus. On a narrow screen the card is a sheet at the lower edge.

import { make } from "./dom.js";

const APPEAR = 60; // milliseconds until the card shows a word under the pointer

export class Words {
  /**
   * @param host Element with a part `.text`: the words go below what is in it, the card beside it.
   * @param label Name of the text for screen readers.
   * @param describe Function from an item to the elements of its card.
   */
  constructor(host, label, describe) {
    this.describe = describe;
    this.items = new Map(); // by element, in the order of the text
    this.current = null; // the word on the card
    this.timer = null;
    this.element = make("div", { class: "passage", role: "group", "aria-label": `${label}; arrow keys move between words` });
    this.card = make("aside", { class: "card", id: `${host.id}-card`, "aria-label": "Word", hidden: "" });
    host.querySelector(".text").append(this.element);
    host.append(this.card);
    this.clear();
    const on = (target, type, listener) => target.addEventListener(type, listener);
    on(this.element, "pointerover", (event) => this.point(event));
    on(this.element, "pointerout", () => clearTimeout(this.timer));
    on(this.element, "focusin", (event) => this.open(event.target));
    on(this.element, "click", (event) => this.open(event.target));
    on(this.element, "keydown", (event) => this.key(event));
    on(this.card, "keydown", (event) => this.keyInCard(event));
    on(document, "pointerdown", (event) => host.contains(event.target) || this.close());
  }

  clear() {
    this.close();
    this.items.clear();
    this.element.replaceChildren();
    this.newLine();
  }

  /** Ends a line; the next one begins with the next word. */
  newLine() {
    this.line = null;
  }

  /** Begins the text with one that is not colored. */
  lead(text) {
    this.begin();
    this.line.append(make("bdi", { class: "prompt" }, text));
  }

  begin() {
    this.line ??= this.element.appendChild(make("p"));
  }

  /** Adds a word: `before` is white space, `note` what a screen reader says, `number` what can be shown below. */
  add({ before, text, className, note, number }, item) {
    const isFirst = this.items.size === 0;
    const attributes = { class: `word ${className}`, role: "button", tabindex: isFirst ? 0 : -1, "data-number": number };
    const word = make("span", { ...attributes, "aria-label": `${text}: ${note}` }, text);
    this.begin();
    if (before && this.line.hasChildNodes()) this.line.append(" ");
    else this.line.append(make("wbr"));
    this.line.append(word);
    this.items.set(word, item);
    return word;
  }

  /** Removes all words from the one with this number on. */
  truncate(count) {
    this.close();
    const words = [...this.items.keys()];
    if (count >= words.length) return;
    const range = document.createRange();
    range.setStartBefore(words[count]);
    range.setEndAfter(this.element.lastChild);
    range.deleteContents();
    for (const word of words.slice(count)) this.items.delete(word);
    this.line = this.element.lastElementChild;
    if (count && !words.slice(0, count).some((word) => word.tabIndex === 0)) words[0].tabIndex = 0;
  }

  open(word) {
    clearTimeout(this.timer);
    if (!this.items.has(word)) return;
    this.leave();
    this.current = word;
    word.classList.add("current");
    word.setAttribute("aria-describedby", this.card.id);
    this.card.replaceChildren(...this.describe(this.items.get(word)));
    this.card.hidden = false;
    this.card.scrollTop = 0;
    this.uncover();
  }

  close() {
    clearTimeout(this.timer);
    this.leave();
    this.card.hidden = true;
  }

  leave() {
    this.current?.classList.remove("current");
    this.current?.removeAttribute("aria-describedby");
    this.current = null;
  }

  /** Scrolls the word out from under the sheet. */
  uncover() {
    if (getComputedStyle(this.card).position !== "fixed") return;
    const covered = this.current.getBoundingClientRect().bottom + 16 - this.card.getBoundingClientRect().top;
    if (covered > 0) window.scrollBy(0, covered);
  }

  focus(word) {
    for (const other of this.element.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    word.tabIndex = 0;
    word.focus();
  }

  point(event) {
    clearTimeout(this.timer);
    if (event.pointerType !== "mouse" || this.card.contains(document.activeElement)) return;
    this.timer = setTimeout(() => this.open(event.target), APPEAR);
  }

  key(event) {
    if (!this.items.has(event.target) || event.ctrlKey || event.altKey || event.metaKey) return;
    const words = [...this.items.keys()];
    const place = words.indexOf(event.target);
    const moves = {
      ArrowRight: () => words[place + 1],
      ArrowLeft: () => words[place - 1],
      ArrowDown: () => besides(words, place, 1),
      ArrowUp: () => besides(words, place, -1),
      Home: () => words[0],
      End: () => words.at(-1),
    };
    if (event.key in moves) {
      const word = moves[event.key]();
      if (word) this.focus(word);
    } else if (event.key === "Escape") {
      this.close();
    } else if (event.key === "Enter" || event.key === " ") {
      this.open(event.target);
      this.card.querySelector("button")?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  keyInCard(event) {
    const buttons = [...this.card.querySelectorAll("button")];
    const place = buttons.indexOf(event.target);
    if (event.key === "ArrowDown") buttons[place + 1]?.focus();
    else if (event.key === "ArrowUp") buttons[place - 1]?.focus();
    else if (event.key === "Escape") {
      this.focus(this.current);
      this.close();
    } else return;
    event.preventDefault();
  }
}

/** Returns the nearest word of the next line on the screen, or of the one before. */
function besides(words, place, step) {
  const here = words[place].getBoundingClientRect();
  const middle = here.left + here.width / 2;
  let best = null;
  for (let other = place + step; other >= 0 && other < words.length; other += step) {
    const box = words[other].getBoundingClientRect();
    if (step * (box.top - here.top) < here.height / 2) continue;
    best ??= { top: box.top, distance: Infinity };
    if (Math.abs(box.top - best.top) > here.height / 2) break;
    const distance = Math.abs(box.left + box.width / 2 - middle);
    if (distance < best.distance) best = { top: best.top, distance, word: words[other] };
  }
  return best?.word;
}
