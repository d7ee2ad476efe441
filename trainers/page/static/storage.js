// What lasts as long as the tab: the texts and choices of its forms, so that they survive a reload.

const KEY = "forms";

export function keep(forms) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(forms));
  } catch {
    // Storage can be forbidden or full: then a reload loses the texts.
  }
}

/** Returns what was kept, or an empty object. */
export function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}
