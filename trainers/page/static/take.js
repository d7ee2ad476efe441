// What people take away from a result: a link to it, and its figures as CSV and JSON.

import { make } from "./dom.js";

/** Fills `host` with a link to a result and with downloads: `reply` as JSON, and `table`, a list of rows, as CSV. */
export function takeAway(host, link, reply, table) {
  for (const old of host.querySelectorAll("[download]")) URL.revokeObjectURL(old.href);
  host.replaceChildren(
    make("a", { href: link }, "Link to this result"),
    file("CSV", "text/csv", table.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n"),
    file("JSON", "application/json", JSON.stringify(reply, null, 1)),
  );
}

function file(name, type, text) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  return make("a", { href, download: `result.${name.toLowerCase()}` }, `Download ${name}`);
}

/** Returns a value as a cell of CSV: in quotes where it needs them, and empty if it is unknown. */
function cell(value) {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
