// Read: a text colored by surprisal.

import { Job, ask } from "./api.js";
import { candidateList } from "./candidates.js";
import { count, fillFacts, fixed, make, percent, perplexity } from "./dom.js";
import { surprisalClass, surprisalLegend } from "./scale.js";
import { placed, shown } from "./tokens.js";
import { Words } from "./words.js";

export function readView(page, section) {
  const form = section.querySelector("form");
  const result = section.querySelector(".result");
  const job = new Job(form.querySelector(".status"));
  const words = new Words(section.querySelector(".reading"), "Text", describe);
  let unit = "word";
  section.querySelector(".legend").replaceChildren(...surprisalLegend());
  form.numbers.addEventListener("change", () => words.element.classList.toggle("numbers", form.numbers.checked));

  async function read() {
    const run = page.run();
    await job.run("Reading …", async (signal) => {
      const reply = await ask("api/score", { run: run.name, text: form.text.value, alternatives: 10 }, signal);
      unit = (await page.readRun()).unit;
      showFacts(reply);
      words.clear();
      reply.lines.forEach((record, number) => {
        if (number) words.newLine();
        showLine(record);
      });
      result.hidden = false;
    });
  }

  function showFacts(reply) {
    const tokens = reply.lines.reduce((sum, record) => sum + record.tokens.length, 0);
    const isKnown = new Set(reply.lines.flatMap((record) => record.unknown));
    const facts = [
      ["Perplexity per word", perplexity(reply.perplexity)],
      ["Bits per word", fixed(Math.log2(reply.perplexity))],
      ["Words", count(reply.words)],
    ];
    if (tokens !== reply.words) facts.push(["Tokens", count(tokens)]);
    if (unit === "word") facts.push(["Unknown words", count(isKnown.size)]);
    fillFacts(section.querySelector(".facts"), facts);
  }

  function showLine(record) {
    const unknown = new Set(record.unknown);
    record.tokens.forEach((token, place) => {
      const bits = -(record.log_probs[place] ?? -Infinity) / Math.LN2;
      const isUnknown = unknown.has(token);
      const item = {
        token,
        bits,
        rank: record.ranks[place],
        band: record.bands[place],
        entropy: record.entropies?.[place],
        alternatives: record.alternatives?.[place] ?? [],
        isUnknown,
      };
      words.add(
        {
          ...placed(token, record.pieces?.[place] ?? token, unit),
          className: surprisalClass(bits) + (isUnknown ? " unknown" : ""),
          note: `${fixed(bits, 1)} bits, rank ${item.rank}${isUnknown ? ", unknown" : ""}`,
          number: fixed(bits, 1),
        },
        item,
      );
    });
  }

  function describe(item) {
    const probability = 2 ** -item.bits;
    const candidates = item.alternatives.map(([token, probability]) => ({
      text: shown(token, unit),
      probability,
      isThis: token === item.token || (item.isUnknown && token === "<unk>"),
    }));
    const facts = [
      ["bits", fixed(item.bits, 2)],
      ["probability", percent(probability)],
      ["rank", count(item.rank)],
      ["band", item.band === 0 ? "0 (head)" : item.band],
    ];
    if (item.entropy !== undefined) facts.push(["entropy", `${fixed(item.entropy / Math.LN2, 2)} bits`]);
    const list = make("dl", { class: "facts" });
    fillFacts(list, facts);
    return [
      make("p", { class: "subject" }, make("bdi", {}, shown(item.token, unit))),
      ...(item.isUnknown ? [make("p", { class: "note" }, "Unknown: scored as <unk>")] : []),
      list,
      ...(candidates.length ? [make("h4", {}, "Expected here"), candidateList(candidates)] : []),
    ];
  }

  page.onSubmit(form, read);
  page.shareText(form.text);
  return {
    show() {
      if (result.hidden && form.text.value.trim()) read();
    },
    hide: () => words.close(),
    runChanged() {
      if (section.hidden) result.hidden = true;
      else read();
    },
  };
}
