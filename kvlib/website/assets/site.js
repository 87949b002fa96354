// Theme, contents, search and tables that scroll. Nothing is fetched: what is needed comes as a script.
(() => {
  const theme = document.getElementById("theme");
  const label = (dark) => { theme.textContent = dark ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.setAttribute("aria-label", "Change between light and dark");
  label(kvlibTheme.show());
  theme.addEventListener("click", () => label(kvlibTheme.turn()));

  const contents = document.getElementById("contents");
  const wide = matchMedia("(min-width: 861px)");
  const fold = () => { contents.open = wide.matches; };
  fold();
  wide.addEventListener("change", fold);
  contents.querySelector("[aria-current]")?.scrollIntoView?.({ block: "nearest" });

  // What scrolls sideways can be reached by the keyboard, and only then.
  const reach = () => {
    for (const box of document.querySelectorAll(".scroll, pre, .formula, .kv-below, .kv-foot details")) {
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        if (!box.matches("pre, details")) { box.setAttribute("role", "group"); box.setAttribute("aria-label", "Scrolls sideways"); }
      } else box.removeAttribute("tabindex");
    }
  };
  let soon = 0;
  const later = () => { clearTimeout(soon); soon = setTimeout(reach, 150); };
  addEventListener("resize", later);
  addEventListener("toggle", later, true);
  addEventListener("kvlib-drawn", later);
  later();

  // A link into a closed answer opens it.
  const open = () => {
    let at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const goal = at;
    for (; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    goal?.scrollIntoView();
  };
  if (location.hash) open();
  addEventListener("hashchange", open);

  const box = document.getElementById("find"), found = document.getElementById("found"), count = document.getElementById("found-count");
  let loading = null;
  const load = () => (loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "assets/search.js";
    script.onload = () => resolve(globalThis.kvlibSearch);
    script.onerror = reject;
    document.head.append(script);
  }));
  const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "");
  const score = (entry, terms) => {
    let sum = 0;
    for (const term of terms) {
      const inHead = plain(entry.heading).includes(term), inTitle = plain(entry.title).includes(term);
      const hits = entry.plain.split(term).length - 1;
      if (!inHead && !inTitle && !hits) return 0;
      sum += (inHead ? 20 : 0) + (inTitle ? 5 : 0) + Math.min(hits, 5);
    }
    return sum;
  };
  const snippet = (entry, terms) => {
    const at = Math.max(0, Math.min(...terms.map((t) => entry.plain.indexOf(t)).filter((n) => n >= 0).concat([Infinity])) - 50);
    const text = entry.text.slice(Number.isFinite(at) ? at : 0, (Number.isFinite(at) ? at : 0) + 170);
    const node = document.createElement("p");
    let rest = text;
    while (rest) {
      const low = plain(rest);
      const places = terms.map((t) => [low.indexOf(t), t]).filter(([n]) => n >= 0).sort((a, b) => a[0] - b[0]);
      if (!places.length) { node.append(rest); break; }
      const [[n, term]] = places;
      const mark = document.createElement("mark");
      mark.textContent = rest.slice(n, n + term.length);
      node.append(rest.slice(0, n), mark);
      rest = rest.slice(n + term.length);
    }
    return node;
  };
  const search = async () => {
    const terms = plain(box.value).split(/\s+/).filter(Boolean);
    if (!terms.length) { found.hidden = true; count.textContent = ""; return; }
    const entries = await load();
    for (const entry of entries) entry.plain ??= plain(entry.text);
    const hits = entries.map((entry) => [score(entry, terms), entry]).filter(([n]) => n).sort((a, b) => b[0] - a[0]);
    const list = document.createElement("ol");
    for (const [, entry] of hits.slice(0, 20)) {
      const link = document.createElement("a");
      link.href = entry.page + (entry.place ? "#" + encodeURIComponent(entry.place) : "");
      link.textContent = entry.heading && entry.heading !== entry.title ? `${entry.title} › ${entry.heading}` : entry.title;
      const item = document.createElement("li");
      item.append(link, snippet(entry, terms));
      list.append(item);
    }
    const words = hits.length ? `${hits.length} place${hits.length > 1 ? "s" : ""}` : "Nothing found";
    count.textContent = words;
    const said = document.createElement("p");
    said.textContent = hits.length > 20 ? words + ", the first 20:" : words + (hits.length ? ":" : ".");
    found.replaceChildren(said, list);
    found.hidden = false;
  };
  box.addEventListener("focus", load);
  box.addEventListener("input", search);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") found.querySelector("a")?.click();
    if (event.key === "ArrowDown") { event.preventDefault(); found.querySelector("a")?.focus(); }
  });
  document.querySelector(".find").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { found.hidden = true; box.focus(); }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".find")) found.hidden = true; });
  found.addEventListener("click", (event) => { if (event.target.closest("a")) found.hidden = true; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea, select")) { event.preventDefault(); box.focus(); }
  });
})();
