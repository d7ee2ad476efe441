// A text that a run has read, colored by what the model knows of each of its tokens.

import { bars, keepDrawn } from "./charts.js";
import { candidateList } from "./candidates.js";
import { count, fillFacts, fixed, make, percent } from "./dom.js";
import { SCALES, bandName, legend } from "./scale.js";
import { placed, shown } from "./tokens.js";
import { Words } from "./words.js";

export class Passage {
  /** Fills `host`, an element with a part `.text` and, in it, a `.legend`. */
  constructor(host, label) {
    this.host = host;
    this.words = new Words(host, label, (item) => this.describe(item));
    this.items = [];
  }

  /** Shows the reply of api/score of a run, colored by one of `SCALES`. */
  show(reply, run, color) {
    this.run = run;
    this.items = reply.lines.flatMap((line, number) => itemsOf(line, number));
    this.paint(color);
  }

  paint(color) {
    const scale = SCALES[color];
    const hasUnknown = this.items.some((item) => item.isUnknown);
    this.host.querySelector(".legend").replaceChildren(...legend(scale, this.run, hasUnknown));
    this.words.clear();
    this.items.forEach((item, place) => {
      if (place && item.line !== this.items[place - 1].line) this.words.newLine();
      const facts = `${fixed(item.bits, 1)} bits, rank ${count(item.rank)}, band ${item.band}`;
      this.words.add(
        {
          ...placed(item.token, item.piece, this.run.unit),
          className: item.isUnknown ? "unknown" : scale.className(item, this.run),
          note: item.isUnknown ? `unknown, scored as <unk>: ${facts}` : facts,
          number: scale.format(item),
        },
        item,
      );
    });
  }

  /** Shows the mean bits of each band in an element, which is hidden if there is only one. */
  showBands(host) {
    const groups = Array.from({ length: this.run.bands.length - 1 }, (_, band) => {
      const bits = this.items.filter((item) => item.band === band).map((item) => item.bits);
      const mean = bits.length ? bits.reduce((sum, value) => sum + value, 0) / bits.length : null;
      return { label: bandName(this.run, band), values: [mean], note: count(bits.length) };
    });
    host.hidden = groups.length < 2;
    const options = { names: ["bits"], title: "Mean bits per token by band of the vocabulary" };
    keepDrawn(host.querySelector(".chart"), (width) => bars(groups, { ...options, width }));
  }

  describe(item) {
    const { unit } = this.run;
    const candidates = item.alternatives.map(([token, probability]) => ({
      text: shown(token, unit),
      probability,
      isThis: token === item.token || (item.isUnknown && token === "<unk>"),
    }));
    const facts = make("dl", { class: "facts" });
    fillFacts(facts, [
      ["bits", fixed(item.bits, 2)],
      ["probability", percent(2 ** -item.bits)],
      ["rank", count(item.rank)],
      ["band", item.band === 0 ? "0 (head)" : item.band],
      ["entropy", `${fixed(item.entropy, 2)} bits`],
    ]);
    return [
      make("p", { class: "subject" }, make("bdi", {}, shown(item.token, unit))),
      ...(item.isUnknown ? [make("p", { class: "note" }, "Unknown: scored as <unk>")] : []),
      facts,
      ...(candidates.length ? [make("h4", {}, "Expected here"), candidateList(candidates)] : []),
    ];
  }

  /** Returns the table of the text, for a download. */
  table() {
    const head = ["line", "position", "token", "bits", "rank", "band", "entropy", "unknown"];
    const rows = this.items.map((item) => {
      const { line, place, token, bits, rank, band, entropy, isUnknown } = item;
      return [line + 1, place + 1, token, bits, rank, band, entropy, isUnknown];
    });
    return [head, ...rows];
  }
}

/** Returns how the lines of a reply were read, such as "in windows of 64 tokens, 32 of them context". */
export function readingOf(reply) {
  return [...new Set(reply.lines.map((line) => line.reading))].join(" or ");
}

/** Returns the tokens of a line with what is known of each. */
function itemsOf(record, line) {
  const unknown = new Set(record.unknown);
  return record.tokens.map((token, place) => ({
    line,
    place,
    token,
    piece: record.pieces[place],
    bits: -(record.log_probs[place] ?? -Infinity) / Math.LN2,
    rank: record.ranks[place],
    band: record.bands[place],
    entropy: record.entropies[place] / Math.LN2,
    alternatives: record.alternatives[place],
    isUnknown: unknown.has(token),
  }));
}
