// Compare: two runs on one text, or one run on two texts.

import { Job, ask } from "./api.js";
import { bars, keepDrawn, rangeName } from "./charts.js";
import { count, fillFacts, fillRuns, fixed, make, perplexity, signed } from "./dom.js";
import { Passage, readingOf } from "./passage.js";
import { differenceClass, differenceLegend } from "./scale.js";
import { takeAway } from "./take.js";
import { Words } from "./words.js";

const LARGEST = 8; // words in each list of the largest differences

export function compareView(page, section) {
  const form = section.querySelector("form");
  const [ofRuns, ofTexts] = section.querySelectorAll(".result");
  const job = new Job(form.querySelector(".status"), ofRuns, ofTexts);
  const words = new Words(section.querySelector("#compare-reading"), "Text", describe);
  const passages = ["first", "second"].map(
    (name) => new Passage(section.querySelector(`#compare-${name}`), `The ${name} text`),
  );
  let names = ["", ""];
  fillRuns(form.first, page.runs, page.runs[0].name);
  if (page.runs.length < 2) form.what.querySelector("[value=runs]").remove();
  form.numbers.addEventListener("change", number);
  form.what.addEventListener("change", choose);
  form.first.addEventListener("change", choose);
  choose();

  /** Shows the fields of what is compared. The second run is never the first. */
  function choose() {
    const isOfTexts = form.what.value === "texts";
    const others = page.runs.filter((run) => run.name !== form.first.value);
    const second = others.find((run) => run.name === form.second.value) ?? others[0];
    fillRuns(form.second, others, second?.name);
    for (const element of form.querySelectorAll(".of-runs")) element.hidden = isOfTexts;
    for (const element of form.querySelectorAll(".of-texts")) element.hidden = !isOfTexts;
    form.second.disabled = isOfTexts;
    form.other.disabled = !isOfTexts;
  }

  function number() {
    for (const { element } of [words, ...passages.map((passage) => passage.words)]) {
      element.classList.toggle("numbers", form.numbers.checked);
    }
  }

  async function compare() {
    const isOfTexts = form.what.value === "texts";
    await job.run("Reading …", async (signal) => {
      await (isOfTexts ? compareTexts(signal) : compareRuns(signal));
      number();
      ofRuns.hidden = isOfTexts;
      ofTexts.hidden = !isOfTexts;
    });
  }

  async function compareTexts(signal) {
    const texts = [form.text.value, form.other.value];
    const replies = [];
    const name = form.first.value;
    for (const text of texts) replies.push(await ask("api/score", { run: name, text, alternatives: 10 }, signal));
    const run = await page.readRun(name);
    const bits = replies.map((reply) => reply.bits);
    const preferred = bits[0] === bits[1] ? "neither" : bits[0] < bits[1] ? "the first" : "the second";
    fillFacts(ofTexts.querySelector(".facts"), [
      ["Bits of the first text", fixed(bits[0])],
      ["Bits of the second text", fixed(bits[1])],
      ["Second − first", `${signed(bits[1] - bits[0], 2)} bits`],
      ["Expected more", preferred],
    ]);
    ofTexts.querySelector(".how").textContent = readingOfBoth("text", replies.map(readingOf));
    passages.forEach((passage, place) => passage.show(replies[place], run, "bits"));
    const [head, ...rows] = passages[0].table();
    const tables = [rows, passages[1].table().slice(1)];
    const table = [["text", ...head], ...tables.flatMap((rows, place) => rows.map((row) => [place + 1, ...row]))];
    takeAway(ofTexts.querySelector(".take"), page.link("compare", form), { run: run.name, texts, replies }, table);
  }

  async function compareRuns(signal) {
    names = [form.first.value, form.second.value];
    const text = form.text.value;
    const reply = await ask("api/compare", { runs: names, text }, signal);
    show(reply);
    const rows = reply.words.map((word) => [word.text, ...word.bits, word.count, word.unknown]);
    const table = [["word", ...names.map((name) => `bits, ${name}`), "count", "unknown"], ...rows];
    takeAway(ofRuns.querySelector(".take"), page.link("compare", form), { text, ...reply }, table);
  }

  function show(reply) {
    const [first, second] = reply.perplexity;
    fillFacts(ofRuns.querySelector(".facts"), [
      [`Perplexity, ${names[0]}`, perplexity(first)],
      [`Perplexity, ${names[1]}`, perplexity(second)],
      ["Bits per word, second − first", signed(Math.log2(second) - Math.log2(first), 2)],
    ]);
    ofRuns.querySelector(".how").textContent = readingOfBoth("run", reply.reading);
    ofRuns.querySelector(".legend").replaceChildren(...differenceLegend(...names));
    words.clear();
    const scored = [];
    for (const word of reply.words) {
      if (word.bits) {
        showWord(word);
        scored.push(word);
      }
      if (word.text === "\n") words.newLine();
    }
    const groups = reply.by_frequency.map((range) => ({
      label: rangeName(range.from, range.to),
      values: range.bits,
      note: count(range.words),
    }));
    const title = "Mean bits per word of both runs, by the frequency of the word";
    section.querySelector("#compare-frequency-part").hidden = !groups.length;
    keepDrawn(section.querySelector("#compare-frequency"), (width) => bars(groups, { names, title, width }));
    showLargest(scored);
  }

  /** Says how both runs, or both texts, were read. */
  function readingOfBoth(what, [first, second]) {
    if (first === second) return `Each line is read ${first}.`;
    return `Each line is read ${first} (first ${what}), or ${second} (second ${what}).`;
  }

  function showWord(word) {
    const difference = word.bits[0] - word.bits[1];
    words.add(
      {
        before: " ",
        text: word.text === "\n" ? "↵" : word.text,
        className: word.unknown ? "unknown" : differenceClass(difference),
        note: `${fixed(word.bits[0], 1)} and ${fixed(word.bits[1], 1)} bits${word.unknown ? ", unknown" : ""}`,
        number: signed(-difference),
      },
      word,
    );
  }

  function showLargest(scored) {
    const gain = (word) => word.bits[0] - word.bits[1];
    const sorted = [...scored].sort((one, other) => gain(other) - gain(one));
    const lists = [sorted.filter((word) => gain(word) < 0).reverse(), sorted.filter((word) => gain(word) > 0)];
    const columns = lists.map((list, place) => {
      const rows = list.slice(0, LARGEST).map((word) =>
        make(
          "li",
          {},
          make("bdi", { class: "name" }, word.text === "\n" ? "↵" : word.text),
          make("span", { class: "number" }, `${fixed(Math.abs(gain(word)), 1)} bits`),
        ),
      );
      const title = make("h4", {}, make("bdi", {}, names[place]), " expected more");
      return make("div", {}, title, make("ol", { class: "pairs" }, ...rows));
    });
    section.querySelector("#compare-largest").replaceChildren(...columns);
  }

  function describe(word) {
    const facts = make("dl", { class: "facts" });
    fillFacts(facts, [
      [names[0], `${fixed(word.bits[0], 2)} bits`],
      [names[1], `${fixed(word.bits[1], 2)} bits`],
      ["second − first", `${signed(word.bits[1] - word.bits[0], 2)} bits`],
      ...(word.count === null || word.count === undefined ? [] : [["in the training text", count(word.count)]]),
    ]);
    return [
      make("p", { class: "subject" }, make("bdi", {}, word.text === "\n" ? "↵" : word.text)),
      ...(word.unknown ? [make("p", { class: "note" }, "Unknown: scored as <unk>")] : []),
      facts,
    ];
  }

  page.onSubmit(form, compare);
  page.shareText(form.text);
  return {
    form,
    filled: choose,
    hide() {
      for (const one of [words, ...passages.map((passage) => passage.words)]) one.close();
    },
  };
}
