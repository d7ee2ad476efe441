// The reader on the front page: a text area over its own text in color, and the card of the word at the caret.

import { candidateList } from "./candidates.js";
import { count, fillFacts, fixed, make, percent, perplexity } from "./dom.js";
import { SCALES, legend } from "./scale.js";
import { placed, split } from "./split.js";
import { shown } from "./tokens.js";

const MOST = 64; // words, for which the model was made
const CONTEXTS = [1, 2, 3, 4, 6, 8, 12, 16, 32, MOST];
const PAUSE = 150; // milliseconds after a key, before the model reads
const REST = 600; // milliseconds on a word, before a screen reader hears of it

const host = document.querySelector("#reader");
const part = (selector) => host.querySelector(selector);
const [area, mirror, card, slider] = ["textarea", ".mirror", ".card", "[type=range]"].map(part);

let words = []; // of the text: a token, its place, and its span
let answers = []; // of the model, by number of the word; the last one is about what comes next
let job = 0;
let timer = null; // until the model reads
let speech = null; // until a screen reader hears of a word
let current = null; // number of the word on the card
let isMoved = false; // whether the caret has been used; before, the card shows the most surprising word

const worker = start();

function start() {
  if (typeof WebAssembly !== "object" || typeof DecompressionStream !== "function") {
    return fail("this browser is too old for it (WebAssembly and DecompressionStream)");
  }
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }) => hear(data);
  worker.onerror = () => fail("its files could not be loaded");
  return worker;
}

/** Shows one line in place of the reader. */
function fail(reason) {
  part(".problem").textContent = `The reader cannot run here: ${reason}. The page below does not need it.`;
  part(".problem").hidden = false;
  host.classList.add("failed");
}

function hear({ problem, ...answer }) {
  if (problem) fail(problem);
  else if (answer.job === job) take(answer);
}

function take({ place, answers: some, isDone }) {
  answers.splice(place, some.length, ...some);
  some.forEach((_, number) => paint(place + number));
  if (!isDone) return;
  summarize();
  follow();
}

/** Draws the text, with the colors that hold until its first change, and lets the model read. */
function change() {
  const before = words.map((word) => word.token);
  words = split(area.value);
  const same = words.findIndex((word, number) => word.token !== before[number]);
  answers.length = Math.min(answers.length, same < 0 ? words.length : same);
  mirror.replaceChildren();
  let end = 0;
  words.forEach((word, number) => {
    word.span = make("span", {}, area.value.slice(word.start, word.end));
    mirror.append(area.value.slice(end, word.start), word.span);
    end = word.end;
    paint(number);
  });
  mirror.append(`${area.value.slice(end)}\u200b`); // which gives the last line its height
  current = null;
  job++; // no answer about the text before is of use
  readSoon();
}

function readSoon() {
  clearTimeout(timer);
  timer = setTimeout(read, PAUSE);
}

function read() {
  const tokens = words.slice(0, MOST).map((word) => word.token);
  answers = answers.slice(0, tokens.length + 1);
  worker?.postMessage({ job: ++job, tokens, context: CONTEXTS[slider.value] });
}

function paint(number) {
  const [word, answer] = [words[number], answers[number]];
  if (!word) return;
  const color = answer?.isUnknown ? "unknown" : answer && SCALES.bits.className({ bits: bits(answer) });
  word.span.className = number < MOST ? `word ${color ?? ""}` : "word beyond";
}

function summarize() {
  const known = answers.filter((answer) => answer.logProb !== undefined);
  const mean = known.reduce((sum, answer) => sum + bits(answer), 0) / known.length;
  const unknown = known.filter((answer) => answer.isUnknown).length;
  const facts = known.length ? [["perplexity", perplexity(2 ** mean)], ["bits per word", fixed(mean)]] : [];
  if (unknown) facts.push(["unknown", unknown]);
  fillFacts(part(".below .facts"), facts);
  part(".below .status").textContent = words.length > MOST ? `The model reads the first ${MOST} words.` : "";
}

/** Shows the word at the caret; before anybody has been there, the most surprising word. */
function follow() {
  const at = area.selectionStart;
  const caret = words.findIndex((word) => word.end > at || (word.end === at && word.token !== "</s>"));
  const worst = answers.reduce((worst, { logProb }, number) => (logProb < answers[worst].logProb ? number : worst), 0);
  show(!isMoved ? worst : caret < 0 ? words.length : caret);
}

/** Shows a word on the card; the number after the last word is that of what comes next. */
function show(number) {
  const [word, answer] = [words[number], answers[number]];
  words[current]?.span.classList.remove("current");
  word?.span.classList.add("current");
  current = number;
  card.classList.toggle("late", !answer);
  if (!answer || (word && answer.logProb === undefined)) return;
  const name = word ? shown(word.token, "word") : "What comes next?";
  const facts = word && [
    ["bits", fixed(bits(answer), 1)],
    ["probability", percent(Math.exp(answer.logProb))],
    ["rank", count(answer.rank)],
  ];
  const candidates = answer.alternatives.map(([token, probability]) => ({
    token,
    text: shown(token, "word"),
    probability,
    isThis: token === word?.token,
  }));
  const list = make("dl", { class: "facts" });
  fillFacts(list, facts ?? [["after", "the text so far"]]);
  card.replaceChildren(
    make("p", { class: "subject" }, make("bdi", {}, name)),
    list,
    make("h3", {}, answer.isUnknown ? "Not in the vocabulary, read as <unk>. Expected here" : "Expected here"),
    candidateList(candidates, ({ token }) => choose(number, token)),
  );
  say([name, ...(facts ?? []).map(([what, value]) => `${what} ${value}`), `expected ${candidates[0].text}`].join(", "));
}

/** Says to a screen reader what the card shows, once the caret rests. */
function say(text) {
  if (!isMoved) return;
  clearTimeout(speech);
  speech = setTimeout(() => (part(".spoken").textContent = text), REST);
}

/** Puts a token in the place of a word, or after the text. */
function choose(number, token) {
  const text = area.value;
  const { start, end } = words[number] ?? { start: text.length, end: text.length };
  const [from, string] = placed(text.slice(0, start), token, text.slice(end));
  area.setRangeText(string, from, end, "end");
  if (!words[number] && token !== "</s>") area.setRangeText(" ", area.selectionEnd, area.selectionEnd, "end"); // the next word
  area.focus();
  change();
}

function bits(answer) {
  return -answer.logProb / Math.LN2;
}

function showContext() {
  const context = CONTEXTS[slider.value];
  const text = context === MOST ? "all words before it" : context === 1 ? "one word before it" : `${context} words before it`;
  part("output").textContent = text;
  slider.setAttribute("aria-valuetext", text);
}

area.addEventListener("input", change);
area.addEventListener("focus", () => (isMoved = true));
document.addEventListener("selectionchange", () => document.activeElement === area && follow());
area.addEventListener("pointermove", ({ pointerType, clientX, clientY }) => {
  if (pointerType !== "mouse" || document.activeElement === area) return; // then the caret leads
  const under = document.elementsFromPoint(clientX, clientY);
  const number = words.findIndex((word) => under.includes(word.span));
  if (number >= 0 && number !== current) show(number);
});
slider.addEventListener("input", () => {
  showContext();
  readSoon();
});
host.classList.add("live"); // from now on the text is drawn in color
part(".legend").replaceChildren(...legend(SCALES.bits, null, true));
showContext();
change();
