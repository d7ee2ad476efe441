// Compare: two runs on the same text.

import { Job, ask } from "./api.js";
import { bars, keepDrawn, rangeName } from "./charts.js";
import { count, fillFacts, fillRuns, fixed, make, perplexity, signed } from "./dom.js";
import { differenceClass, differenceLegend } from "./scale.js";
import { Words } from "./words.js";

const LARGEST = 8; // words in each list of the largest differences

export function compareView(page, section) {
  const form = section.querySelector("form");
  const result = section.querySelector(".result");
  const job = new Job(form.querySelector(".status"));
  const words = new Words(section.querySelector(".reading"), "Text", describe);
  let names = ["", ""];
  fillRuns(form.first, page.runs, page.runs[0]?.name);
  fillRuns(form.second, page.runs, (page.runs[1] ?? page.runs[0])?.name);
  form.numbers.addEventListener("change", () => words.element.classList.toggle("numbers", form.numbers.checked));

  async function compare() {
    const runs = [form.first.value, form.second.value];
    if (runs[0] === runs[1]) {
      job.stop();
      job.say("Choose two different runs. Start trainers.serve with --run_dir=runs/a,runs/b to serve two.", true);
      return;
    }
    await job.run("Reading …", async (signal) => {
      const reply = await ask("api/compare", { runs, text: form.text.value }, signal);
      names = runs;
      show(reply);
      result.hidden = false;
    });
  }

  function show(reply) {
    const [first, second] = reply.perplexity;
    fillFacts(section.querySelector(".facts"), [
      [`Perplexity, ${names[0]}`, perplexity(first)],
      [`Perplexity, ${names[1]}`, perplexity(second)],
      ["Bits per word, second − first", signed(Math.log2(second) - Math.log2(first), 2)],
    ]);
    section.querySelector(".legend").replaceChildren(...differenceLegend(...names));
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

  function showWord(word) {
    const difference = word.bits[0] - word.bits[1];
    words.add(
      {
        before: " ",
        text: word.text === "\n" ? "↵" : word.text,
        className: differenceClass(difference) + (word.unknown ? " unknown" : ""),
        note: `${fixed(word.bits[0], 1)} and ${fixed(word.bits[1], 1)} bits`,
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
  return { hide: () => words.close() };
}
