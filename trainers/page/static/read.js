// Read: a text colored by surprisal, rank, entropy or band.

import { Job, ask } from "./api.js";
import { count, fillFacts, fixed, perplexity } from "./dom.js";
import { Passage, readingOf } from "./passage.js";
import { takeAway } from "./take.js";

export function readView(page, section) {
  const form = section.querySelector("form");
  const result = section.querySelector(".result");
  const job = new Job(form.querySelector(".status"), result);
  const passage = new Passage(section.querySelector(".reading"), "Text");
  form.numbers.addEventListener("change", number);
  form.color.addEventListener("change", () => result.hidden || passage.paint(form.color.value));

  function number() {
    passage.words.element.classList.toggle("numbers", form.numbers.checked);
  }

  async function read() {
    const { name } = page.run();
    const text = form.text.value;
    await job.run("Reading …", async (signal) => {
      const reply = await ask("api/score", { run: name, text, alternatives: 10 }, signal);
      const run = await page.readRun();
      passage.show(reply, run, form.color.value);
      showFacts(reply, run);
      number();
      result.hidden = false;
      passage.showBands(section.querySelector("#read-bands"));
      takeAway(result.querySelector(".take"), page.link("read", form), { run: name, text, ...reply }, passage.table());
    });
  }

  function showFacts(reply, { unit }) {
    const known = passage.items.filter((item) => !item.isUnknown);
    const facts = [
      ["Perplexity per word", perplexity(reply.perplexity)],
      ["Bits per word", fixed(Math.log2(reply.perplexity))],
      ["Words", count(reply.words)],
    ];
    if (passage.items.length !== reply.words) facts.push(["Tokens", count(passage.items.length)]);
    if (unit === "word") facts.push(["Unknown words", count(reply.unknown)]);
    if (reply.unknown && known.length) {
      facts.push(["Bits per known word", fixed(known.reduce((sum, item) => sum + item.bits, 0) / known.length)]);
    }
    fillFacts(section.querySelector(".facts"), facts);
    result.querySelector(".how").textContent = `Each line is read ${readingOf(reply)}.`;
  }

  page.onSubmit(form, read);
  page.shareText(form.text);
  return {
    form,
    show() {
      if (result.hidden && form.text.value.trim()) read();
    },
    hide: () => passage.words.close(),
    runChanged() {
      if (section.hidden) result.hidden = true;
      else read();
    },
  };
}
