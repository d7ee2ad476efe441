// The candidates of a place in a text.

import { make, percent } from "./dom.js";

/** Returns the list of candidates: `[{ text, probability, isThis }]`; with `pick`, each is a button that calls it. */
export function candidateList(candidates, pick) {
  const most = Math.max(...candidates.map((candidate) => candidate.probability), 1e-9);
  const rows = candidates.map((candidate) => {
    const bar = make("span", { class: "bar" });
    bar.style.setProperty("--share", candidate.probability / most);
    const cells = [
      make("bdi", { class: "name" }, candidate.text),
      make("span", { class: "track", "aria-hidden": "true" }, bar),
      make("span", { class: "number" }, percent(candidate.probability)),
    ];
    const row = make("li", { class: candidate.isThis ? "this" : null });
    if (pick) {
      const button = make("button", { type: "button", class: "candidate" }, ...cells);
      button.addEventListener("click", () => pick(candidate));
      row.append(button);
    } else {
      row.append(...cells);
    }
    return row;
  });
  return make("ol", { class: "candidates" }, ...rows);
}
