// The card of a panel: question, answer, inputs, pictures, table, key. Python decides, this only shows.
function initialize({ model }) {
  keepListening(model).catch(() => {});
  // Values that Python sets arrive as a patch, so that they never overwrite a newer edit of the reader.
  model.on("change:patch", () => {
    model.set("raw", { ...model.get("raw"), ...(model.get("patch").values ?? {}) });
  });
  keepRows(model);
}

function askBox(model) {
  const node = make("div", { className: "kv-predict" });
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", "A question to answer first");
  const question = make("p", { className: "kv-ask" });
  const reply = make("div", { className: "kv-reply" });
  const verdict = make("div", { className: "kv-verdict" });
  verdict.setAttribute("role", "status");
  node.append(question, reply, verdict);
  let built = "", read = () => "", put = () => {};
  const build = (p) => {
    const id = newId();
    question.innerHTML = p.question;
    question.id = id;
    const record = make("button", { type: "button", textContent: "Record my guess" });
    const reveal = make("button", { type: "button", textContent: "Show the answer" });
    const go = () => model.send({ do: "guess", text: read() });
    record.addEventListener("click", go);
    reveal.addEventListener("click", () => model.send({ do: "reveal" }));
    if (p.options) {
      const radios = p.options.map((o) => make("input", { type: "radio", name: id, value: o }));
      const group = make("div", { className: "kv-buttons" }, ...radios.map((r) => make("label", {}, r, r.value)));
      group.setAttribute("role", "radiogroup");
      group.setAttribute("aria-labelledby", id);
      read = () => radios.find((r) => r.checked)?.value ?? "";
      put = (text) => radios.forEach((r) => { r.checked = r.value === text; });
      reply.replaceChildren(group, record, reveal);
    } else {
      const box = make("input", { type: "text", inputMode: "decimal", autocomplete: "off" });
      box.setAttribute("aria-label", "My guess");
      box.setAttribute("aria-describedby", id);
      box.addEventListener("keydown", (e) => { if (e.key === "Enter") go(); });
      read = () => box.value;
      put = (text) => { box.value = text; };
      reply.replaceChildren(make("span", { className: "kv-box" }, box, make("span", { className: "kv-unit", textContent: p.unit })), record, reveal);
    }
  };
  return {
    node,
    show() {
      const p = model.get("predict");
      node.hidden = !p.question;
      if (!p.question) return;
      const shape = JSON.stringify([p.question, p.options, p.unit]);
      if (shape !== built) { build(p); built = shape; put(p.given); }
      else if (p.given && p.given !== read()) put(p.given);
      else if (!p.given && p.cleared) put("");
      if (verdict.innerHTML !== p.verdict) verdict.innerHTML = p.verdict;
      verdict.classList.toggle("kv-problem", p.problem);
    },
  };
}

// Chips: what would help, one button each; and what can be taken along.
function chipRow(model, name) {
  const node = make("div", { className: "kv-chips" });
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", name);
  let built = "";
  return {
    node,
    show(chips, undo) {
      const shape = JSON.stringify([chips, undo]);
      if (shape === built) return;
      built = shape;
      const held = [...node.querySelectorAll("button")].indexOf(document.activeElement);
      const chip = (label, what) => {
        const button = make("button", { type: "button", textContent: label });
        button.addEventListener("click", () => model.send(what));
        return button;
      };
      const rows = [], plain = undo ? [chip("Undo: " + undo, { do: "undo" })] : [];
      for (const { key, label, words } of chips) {
        const button = chip(label, { do: "act", key });
        if (!words) { plain.push(button); continue; }
        const said = make("span", { id: newId() });
        said.innerHTML = words;
        button.setAttribute("aria-describedby", said.id);
        rows.push(make("div", {}, button, said));
      }
      node.replaceChildren(...rows, ...(plain.length ? [make("div", { className: "kv-plain" }, ...plain)] : []));
      const buttons = node.querySelectorAll("button");
      if (held >= 0 && buttons.length) buttons[Math.min(held, buttons.length - 1)].focus();
    },
  };
}

function takeRow(model) {
  const node = make("div", { className: "kv-take" });
  const told = make("span", { className: "kv-told" });
  told.setAttribute("role", "status");
  const shown = make("textarea", { readOnly: true, rows: 6, hidden: true });
  shown.setAttribute("aria-label", "The text, to be copied by hand");
  let asked = null, built = "";
  const heard = async ({ take, name, text, problem }) => {
    if (take === undefined || take !== asked) return;   // another view asked
    asked = null;
    shown.hidden = true;
    if (problem) { told.textContent = problem; return; }
    if (name) {
      const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      told.textContent = `Saved as ${name}.`;
      return;
    }
    try {
      await navigator.clipboard.writeText(text);
      told.textContent = "Copied.";
    } catch {
      shown.value = text;
      shown.hidden = false;
      shown.focus();
      shown.select();
      told.textContent = "The browser keeps its clipboard: copy it from here.";
    }
  };
  model.on("msg:custom", heard);
  return {
    node,
    show(list) {
      const shape = JSON.stringify(list);
      if (shape === built) return;
      built = shape;
      node.replaceChildren(...list.map(({ key, label }) => {
        const button = make("button", { type: "button", textContent: label });
        button.addEventListener("click", () => { asked = key; told.textContent = ""; model.send({ do: "take", key }); });
        return button;
      }), told, shown);
    },
    close: () => model.off("msg:custom", heard),
  };
}

function render({ model, el }) {
  const card = make("div", { className: "kv-card" });
  const title = make("div", { className: "kv-title" });
  const ask = askBox(model);
  const answer = make("div", { className: "kv-answer" });
  answer.setAttribute("role", "status");
  answer.setAttribute("aria-live", "polite");
  const error = make("div", { className: "kv-error" });
  error.setAttribute("role", "alert");
  const top = make("div", { className: "kv-top" }, answer, error);
  const over = make("div", { className: "kv-over" });
  const row = make("div", { className: "kv-over kv-row" });
  const chips = chipRow(model, "What would help");
  const taken = takeRow(model);
  const inputs = make("div", { className: "kv-inputs" });
  const pictures = make("div", { className: "kv-pictures" });
  const note = make("div", { className: "kv-note" });
  const body = make("div", { className: "kv-body" }, inputs, make("div", {}, pictures, note));
  const wide = make("div", { className: "kv-below" });
  const below = make("div", { className: "kv-below kv-result" });
  const key = make("div", { className: "kv-key" });
  const reset = make("button", { type: "button", textContent: "Reset" });
  reset.addEventListener("click", () => model.send({ do: "reset" }));
  const foot = make("div", { className: "kv-foot" },
    make("details", {}, make("summary", { textContent: "What each control means" }), key), reset);
  card.append(title, ask.node, over, top, chips.node, body, row, wide, below, taken.node, foot);
  el.append(card);

  const fields = {}, shown = {};
  const send = (name) => (raw) => {
    model.set("raw", { ...model.get("raw"), [name]: raw });
    model.set("seen", model.get("patch").number ?? 0);
    model.save_changes();
  };
  for (const field of model.get("fields")) {
    const made = kinds[field.kind](field, send(field.name));
    fields[field.name] = made;
    (field.top ? over : field.row ? row : field.wide ? wide : inputs).append(made.node);
  }
  title.textContent = model.get("title");
  key.innerHTML = model.get("key");
  foot.hidden = !model.get("fields").length;
  body.classList.toggle("kv-no-inputs", !inputs.childElementCount);
  body.classList.toggle("kv-no-picture", !model.get("specs").length);

  let hosts = [], asked = false;
  const drawPictures = () => {
    asked = false;
    const specs = model.get("specs"), fills = model.get("fills"), words = model.get("descriptions");
    specs.forEach((spec, i) => {
      if (!hosts[i]) {
        const node = make("div", { className: "kv-picture" });
        node.setAttribute("role", "img");
        if (spec.height > 0) node.style.minHeight = spec.height + "px";
        pictures.append(node);
        hosts[i] = { node, shown: picture(node, model) };
      }
      hosts[i].node.setAttribute("aria-label", words[i] ?? words[0] ?? "");
      hosts[i].shown.draw(spec, newestRows(model), fills[i]);
    });
    for (const extra of hosts.splice(specs.length)) { extra.shown.close(); extra.node.remove(); }
  };
  // One message changes several traits, one after the other: drawn is what they are together.
  const showPictures = () => {
    if (asked) return;
    asked = true;
    queueMicrotask(drawPictures);
  };
  const put = (node, text) => { if (node.kvText !== text) { node.kvText = text; node.innerHTML = text; } };
  const showWords = () => {
    const problem = model.get("error");
    put(answer, model.get("answer"));
    if (error.textContent !== problem) error.textContent = problem;
    card.classList.toggle("kv-has-error", Boolean(problem));
    put(note, model.get("note"));
    put(below, model.get("table"));
    chips.show(model.get("actions"), model.get("undo"));
    taken.show(model.get("takeaways"));
    const stale = model.get("stale");
    for (const { node } of hosts) node.classList.toggle("kv-stale", stale);
    below.classList.toggle("kv-stale", stale);
    const bad = model.get("bad");
    for (const [name, made] of Object.entries(fields)) made.mark(bad.includes(name));
  };
  const showFields = () => {
    for (const [name, raw] of Object.entries(model.get("raw"))) {
      if (shown[name] === raw) continue;   // what a reader is typing beside the one that moved stays
      shown[name] = raw;
      fields[name]?.show(raw);
    }
  };
  const watch = {
    "change:raw": showFields,
    "change:answer change:error change:stale change:bad change:note change:table change:actions change:undo change:takeaways": showWords,
    "change:specs change:fills change:rows change:changed_rows change:descriptions": showPictures,
    "change:predict": ask.show,
  };
  for (const [events, go] of Object.entries(watch)) model.on(events, go);
  // A region that has once been tall stays tall: nothing below it moves while a number changes.
  const held = [top, chips.node, below, note];
  const sizes = new ResizeObserver(() => {
    const width = card.offsetWidth;
    if (!width) return;
    for (const node of held) {
      if (width !== card.kvWidth) node.style.minHeight = "";
      const tall = node.getBoundingClientRect().height;
      if (tall > (parseFloat(node.style.minHeight) || 0)) node.style.minHeight = tall + "px";
    }
    card.kvWidth = width;
  });
  for (const node of [card, ...held]) sizes.observe(node);
  // JupyterLab takes the arrow keys before an input sees them, unless the element asks it not to.
  const keys = (event) => {
    if (!card.contains(event.target)) return;
    const ours = !(event.ctrlKey || event.metaKey || (event.shiftKey && event.key === "Enter"));
    // Asked of the card and of the very element: Lab looks at that one first, and takes a menu's or a button's arrows.
    for (const node of [card, event.target]) node.toggleAttribute("data-lm-suppress-shortcuts", ours);
  };
  window.addEventListener("keydown", keys, true);

  showFields();
  ask.show();
  drawPictures();
  showWords();
  return () => {
    window.removeEventListener("keydown", keys, true);
    sizes.disconnect();
    taken.close();
    for (const [events, go] of Object.entries(watch)) model.off(events, go);
    for (const { shown } of hosts) shown.close();
  };
}
export default { initialize, render };
