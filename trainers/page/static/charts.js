// Charts as SVG, drawn as wide as their place is. Colors are classes of page.css.

import { count, draw, fixed, make, short } from "./dom.js";

const observers = new WeakMap(); // by the element of a chart

/** Draws a chart into an element, again whenever its width changes: `render(width)` returns elements. */
export function keepDrawn(host, render) {
  observers.get(host)?.disconnect();
  let drawn = 0;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (!width || width === drawn) return;
    drawn = width;
    host.replaceChildren(...render(width));
  });
  observers.set(host, observer);
  observer.observe(host);
}

/**
 * Returns horizontal bars in groups, a legend if there are several in each, and the figures as a table.
 *
 * @param groups List of `{ label, values, note }`, a value for each name.
 */
export function bars(groups, { names, title, digits = 2, large = false, width }) {
  const format = (value) => (value === null || value === undefined ? "–" : large ? count(value) : fixed(value, digits));
  const thick = names.length > 1 ? 13 : 18;
  const step = names.length * (thick + 2) + 14;
  const longest = Math.max(...groups.map((group) => group.label.length), 0);
  const left = Math.min(Math.max(64, 7.4 * longest + 12), 0.42 * width);
  const right = large ? 92 : 52;
  const most = Math.max(...groups.flatMap((group) => group.values.map((value) => value ?? 0)), 1e-9);
  const picture = draw("svg", { width, height: step * groups.length, role: "img", "aria-label": title });
  groups.forEach((group, row) => {
    const top = row * step + 4;
    const middle = top + (names.length * (thick + 2)) / 2;
    picture.append(text(group.label, left - 10, middle, "end"));
    group.values.forEach((value, place) => {
      const size = ((value ?? 0) / most) * (width - left - right);
      const y = top + place * (thick + 2);
      picture.append(
        draw("rect", { x: left, y, width: Math.max(size, 1), height: thick, rx: 2, class: `series${place}` }),
        text(format(value), left + size + 6, y + thick / 2, "start", "value"),
      );
    });
  });
  const rows = groups.map((group) => [group.label, ...group.values.map(format), ...(group.note ? [group.note] : [])]);
  const noted = groups.some((group) => group.note) ? ["words"] : [];
  const legend = names.length > 1 ? [key(names)] : [];
  return [...legend, picture, table(["", ...names, ...noted], rows)];
}

/**
 * Returns the lines of `series`, a list of `{ name, points: [[x, y], …], marked }`, over updates.
 *
 * The scale on the left is the loss in nats, the scale on the right the perplexity.
 */
export function curves(series, { title, width }) {
  const height = Math.round(Math.min(360, Math.max(230, 0.5 * width)));
  const edge = { left: 40, right: 52, top: 12, bottom: 44 };
  const points = series.flatMap((one) => one.points);
  const lastX = Math.max(...points.map(([x]) => x), 1);
  const losses = points.map(([, y]) => y);
  const low = Math.min(...losses);
  const high = Math.max(...losses);
  const margin = Math.max(0.06 * (high - low), 0.05);
  const [bottom, top] = [Math.max(0, low - margin), high + margin];
  const toX = (x) => edge.left + (x / lastX) * (width - edge.left - edge.right);
  const toY = (y) => edge.top + ((top - y) / (top - bottom)) * (height - edge.top - edge.bottom);
  const picture = draw("svg", { width, height, role: "img", "aria-label": title });
  for (const value of ticks(bottom, top, 6)) {
    const y = toY(value);
    picture.append(
      draw("line", { x1: edge.left, x2: width - edge.right, y1: y, y2: y, class: "grid" }),
      text(String(value), edge.left - 8, y, "end"),
    );
  }
  let last = height;
  for (const value of rounded(Math.exp(bottom), Math.exp(Math.min(top, 50)))) {
    const y = toY(Math.log(value));
    if (last - y < 18) continue;
    picture.append(text(short(value), width - edge.right + 8, y, "start"));
    last = y;
  }
  for (const value of ticks(0, lastX, width < 500 ? 3 : 6)) {
    picture.append(text(short(value), toX(value), height - edge.bottom + 16, "middle"));
  }
  picture.append(
    draw("line", { x1: edge.left, x2: width - edge.right, y1: toY(bottom), y2: toY(bottom), class: "axis" }),
    text("update", (edge.left + width - edge.right) / 2, height - 9, "middle", "name"),
  );
  series.forEach((one, place) => {
    const path = one.points.map(([x, y], index) => `${index ? "L" : "M"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`);
    picture.append(draw("path", { d: path.join(""), class: `line series${place}` }));
    if (!one.marked) return;
    for (const [x, y] of one.points) {
      picture.append(draw("circle", { cx: toX(x), cy: toY(y), r: 3, class: `series${place}` }));
    }
  });
  const scales = make("p", { class: "scales" }, make("span", {}, "loss (nats)"), make("span", {}, "perplexity"));
  return [key(series.map((one) => one.name)), scales, picture];
}

function text(content, x, y, anchor, name = null) {
  return draw("text", { x, y, "text-anchor": anchor, "dominant-baseline": "central", class: name }, content);
}

function key(names) {
  const items = names.map((name, place) => make("li", { class: `key${place}` }, make("bdi", {}, name)));
  return make("ul", { class: "key" }, ...items);
}

function table(names, rows) {
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map(([name, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell))),
  );
  const element = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("details", {}, make("summary", {}, "Figures as a table"), element);
}

/** Returns about `number` round values from `low` to `high`. */
function ticks(low, high, number) {
  const rough = (high - low) / number;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const values = [];
  for (let place = Math.ceil(low / step); place * step <= high * 1.000001; place++) {
    values.push(Number((place * step).toPrecision(6)));
  }
  return values;
}

/** Returns 1, 2 and 5 times the powers of ten between `low` and `high`. */
function rounded(low, high) {
  const values = [];
  for (let power = 1; power <= high; power *= 10) {
    for (const digit of [1, 2, 5]) {
      if (digit * power >= low && digit * power <= high) values.push(digit * power);
    }
  }
  return values;
}

/** Returns the name of a range of counts, low ≤ count < high. */
export function rangeName(low, high) {
  if (high === null || high === undefined) return `${count(low)}+`;
  return high === low + 1 ? count(low) : `${count(low)}–${count(high - 1)}`;
}
