// Elements and numbers. Strings become text nodes, so that no text is ever read as HTML.

/** Returns a new element; attributes that are null, undefined or false are left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Returns a new element of SVG. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Fills a <dl> with names and values. */
export function fillFacts(list, facts) {
  list.replaceChildren(
    ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))),
  );
}

/** Fills a <select> with the names of runs. */
export function fillRuns(select, runs, chosen) {
  const label = (run) => (run.problem ? `${run.name} (damaged)` : run.name);
  select.replaceChildren(...runs.map((run) => make("option", { value: run.name }, label(run))));
  select.value = chosen ?? "";
}

export function count(value) {
  return Number(value).toLocaleString("en-US");
}

/** Returns a large number in short: 1.2k, 45M. */
export function short(value) {
  return Number(value).toLocaleString("en-US", { notation: "compact", maximumFractionDigits: 1 });
}

export function fixed(value, digits = 2) {
  if (!Number.isFinite(value)) return "∞";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function perplexity(value) {
  return fixed(value, value < 1000 ? 2 : 0);
}

export function percent(value) {
  if (value > 0 && value < 0.0001) return "< 0.01 %";
  return `${fixed(100 * value)} %`;
}

export function signed(value, digits = 1) {
  return (value < 0 ? "−" : "+") + fixed(Math.abs(value), digits);
}
