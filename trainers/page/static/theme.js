// Applies the theme that was chosen last, before the page is drawn. Without a choice the system decides.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage can be forbidden: the system's theme it is.
}
