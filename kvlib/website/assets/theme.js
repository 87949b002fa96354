(() => {
  const root = document.documentElement;
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* a page from a folder may have no store */ }
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    if (chosen) root.dataset.theme = chosen;
    root.dataset.jpThemeLight = String(!dark);   // what the controls' style asks
    return dark;
  };
  globalThis.kvlibTheme = { show, turn() {
    chosen = show() ? "light" : "dark";
    try { localStorage.setItem("theme", chosen); } catch { /* kept for this page only */ }
    return show();
  } };
  system.addEventListener("change", show);
  show();
})();
