// Colors of words, as classes of page.css, and their legends.

import { count, fixed, make } from "./dom.js";

const DIFFERENCE = [0.5, 1.5, 4]; // bits, on either side
const RANKS = ["1", "2–3", "4–10", "11–30", "31–100", "101–300", "301–1,000", "1,001+"];
const STEPS = 7; // the last of the classes s0, s1, …

/** Returns a scale whose color changes at these values; an item has its value by this name. */
function scale(name, title, edges, format) {
  const labels = [0, ...edges].map((edge, place) => (place < edges.length ? `${edge}–${edges[place]}` : `${edge}+`));
  return {
    title,
    className: (item) => `s${edges.filter((edge) => item[name] >= edge).length}`,
    format: (item) => format(item[name]),
    swatches: () => labels.map((label, place) => [`s${place}`, label]),
  };
}

const bandClass = (band, run) => `s${Math.round((STEPS * band) / Math.max(run.bands.length - 2, 1))}`;

/** By name: what the words of a text can be colored by. `swatches(run)` are pairs of a class and a label. */
export const SCALES = {
  bits: scale("bits", "Bits per token", [1, 2, 4, 6, 8, 11, 15], (bits) => fixed(bits, 1)),
  rank: {
    ...scale("rank", "Rank of the token", [2, 4, 11, 31, 101, 301, 1001], count),
    swatches: () => RANKS.map((label, place) => [`s${place}`, label]),
  },
  entropy: scale("entropy", "Entropy of the prediction, in bits", [1, 2, 3, 4, 6, 8, 10], (bits) => fixed(bits, 1)),
  band: {
    title: "Band of the vocabulary, by rank of frequency",
    className: (item, run) => bandClass(item.band, run),
    format: (item) => String(item.band),
    swatches: (run) => run.bands.slice(1).map((_, band) => [bandClass(band, run), bandName(run, band)]),
  },
};

/** Returns the name of a band with the ranks of its words, as in "1: 1,001–4,000". */
export function bandName(run, band) {
  return `${band}: ${count(run.bands[band] + 1)}–${count(run.bands[band + 1])}`;
}

export function legend(scale, run, hasUnknown) {
  const items = scale.swatches(run).map(([name, label]) => make("li", { class: name }, label));
  const unknown = make("span", { class: "unknown swatch" }, "unknown, as <unk>");
  return [make("span", {}, scale.title), make("ol", { class: "swatches" }, ...items), ...(hasUnknown ? [unknown] : [])];
}

/** Returns the class of a difference in bits: `a…` if the first run expected the word more, `b…` if the second did. */
export function differenceClass(difference) {
  const step = DIFFERENCE.filter((edge) => Math.abs(difference) >= edge).length;
  return step ? `${difference > 0 ? "b" : "a"}${step}` : "d0";
}

export function differenceLegend(first, second) {
  const [small, medium, large] = DIFFERENCE.map((edge) => fixed(edge, Number.isInteger(edge) ? 0 : 1));
  const classes = ["a3", "a2", "a1", "d0", "b1", "b2", "b3"];
  const labels = [`${large}+`, `${medium}+`, `${small}+`, "equal", `${small}+`, `${medium}+`, `${large}+`];
  return [
    make("span", {}, make("bdi", {}, first), " better by bits"),
    make("ol", { class: "swatches" }, ...labels.map((label, place) => make("li", { class: classes[place] }, label))),
    make("span", {}, make("bdi", {}, second), " better"),
  ];
}
