// Colors of words, as classes of page.css, and their legends.

import { fixed, make } from "./dom.js";

const SURPRISAL = [1, 2, 4, 6, 8, 11, 15]; // bits at which a new color begins
const DIFFERENCE = [0.5, 1.5, 4]; // bits, on either side

export function surprisalClass(bits) {
  return `s${SURPRISAL.filter((edge) => bits >= edge).length}`;
}

/** Returns the class of a difference in bits: `a…` if the first run expected the word more, `b…` if the second did. */
export function differenceClass(difference) {
  const step = DIFFERENCE.filter((edge) => Math.abs(difference) >= edge).length;
  return step ? `${difference > 0 ? "b" : "a"}${step}` : "d0";
}

export function surprisalLegend() {
  const edges = [0, ...SURPRISAL];
  const items = edges.map((edge, place) =>
    make("li", { class: `s${place}` }, place + 1 < edges.length ? `${edge}–${edges[place + 1]}` : `${edge}+`),
  );
  return [make("span", {}, "Bits per token"), make("ol", { class: "swatches" }, ...items)];
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
