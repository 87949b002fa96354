// One function per kind of input. Each returns { node, show(raw), mark(bad) }; `send(raw)` reports an edit.
// Ids are unique on the page: each widget has a copy of this script.
const newId = () => `kv-${(page.count = (page.count ?? 0) + 1)}`;
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};
const grouped = (value, decimals) =>
  value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
const loose = (text) => Number(String(text).replace(/[,_\s]/g, "") || NaN);

function slow(send, node) {
  // Typed text is sent when the reader pauses, presses Enter or leaves the box.
  let timer = null, sent = null;
  const go = () => { clearTimeout(timer); if (node.value !== sent) { sent = node.value; send(node.value); } };
  node.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(go, 700); });
  node.addEventListener("change", go);
  node.addEventListener("keydown", (event) => { if (event.key === "Enter" && node.tagName === "INPUT") go(); });
  return (value) => { clearTimeout(timer); sent = value; if (node.value !== value) node.value = value; };
}

function hintFor(field, id) {
  const hint = make("div", { className: "kv-hint", id });
  if (field.flag) hint.append(make("code", { textContent: field.flag }));
  if (field.hint) hint.append(make("span", { className: "kv-unseen", textContent: " " + field.hint }));
  return hint;
}

// Positions of a slider: the stops of a power-of-two slider, or even steps.
function track({ stops, min, max, step, decimals }) {
  const count = stops ? stops.length - 1 : Math.round((max - min) / step);
  const at = (i) => (stops ? stops[i] : min + i * step);
  const text = (value) => grouped(value, decimals);
  const near = (value) => {
    if (!stops) return Math.round((Math.min(max, Math.max(min, value)) - min) / step);
    let best = 0;
    stops.forEach((s, i) => { if (Math.abs(Math.log(s / value)) < Math.abs(Math.log(stops[best] / value))) best = i; });
    return best;
  };
  const beside = (value, way) => {
    let i = near(value);
    const exact = Math.abs(at(i) - value) < 1e-9 * Math.max(1, Math.abs(value));
    if (exact || (at(i) - value) * way < 0) i += way;
    return at(Math.min(count, Math.max(0, i)));
  };
  return { count, at, text, near, beside };
}

const kinds = {
  number(field, send) {
    const id = newId();
    const box = make("input", { type: "text", id, inputMode: "decimal", autocomplete: "off", spellcheck: false });
    box.setAttribute("aria-describedby", id + "-hint");
    const set = slow(send, box);
    const node = make("div", { className: "kv-field" },
      make("div", { className: "kv-head" }, make("label", { htmlFor: id, textContent: field.label }),
        make("span", { className: "kv-box" }, box, make("span", { className: "kv-unit", textContent: field.unit }))));
    let range = null, along = null;
    if (field.slider) {
      along = track(field.slider);
      range = make("input", { type: "range", min: 0, max: along.count, step: 1 });
      range.setAttribute("aria-label", `${field.label}, slider`);
      const put = (value) => { const text = along.text(value); show(text); send(text); };
      range.addEventListener("input", () => put(along.at(range.valueAsNumber)));
      const arrows = (up, down) => (event) => {
        const way = up.includes(event.key) ? 1 : down.includes(event.key) ? -1 : 0;
        const value = loose(box.value);
        if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        put(Number.isFinite(value) ? along.beside(value, way) : along.at(range.valueAsNumber));
      };
      range.addEventListener("keydown", arrows(["ArrowUp", "ArrowRight"], ["ArrowDown", "ArrowLeft"]));
      box.addEventListener("keydown", arrows(["ArrowUp"], ["ArrowDown"]));
      node.append(range);
    }
    const show = (raw) => {
      set(raw);
      const value = loose(raw);
      if (!range) return;
      if (Number.isFinite(value)) range.value = along.near(value);
      range.setAttribute("aria-valuetext", `${raw} ${field.unit}`.trim());
    };
    node.append(hintFor(field, id + "-hint"));
    return { node, show, mark: (bad) => box.setAttribute("aria-invalid", bad) };
  },

  choice(field, send) {
    const id = newId();
    if (field.style === "buttons") {
      const radios = field.options.map((option) => {
        const radio = make("input", { type: "radio", name: id, value: option });
        radio.addEventListener("change", () => send(option));
        return radio;
      });
      const node = make("fieldset", { className: "kv-field" }, make("legend", { textContent: field.label }),
        make("div", { className: "kv-buttons" }, ...radios.map((r) => make("label", {}, r, r.value))), hintFor(field, id + "-hint"));
      node.setAttribute("aria-describedby", id + "-hint");
      return { node, show: (raw) => radios.forEach((r) => { r.checked = r.value === raw; }), mark() {} };
    }
    const menu = make("select", { id }, ...field.options.map((o) => make("option", { value: o, textContent: o })));
    menu.addEventListener("change", () => send(menu.value));
    menu.setAttribute("aria-describedby", id + "-hint");
    const node = make("div", { className: "kv-field" }, make("label", { htmlFor: id, textContent: field.label }), menu, hintFor(field, id + "-hint"));
    return { node, show: (raw) => { menu.value = raw; }, mark: (bad) => menu.setAttribute("aria-invalid", bad) };
  },

  toggle(field, send) {
    const id = newId();
    const box = make("input", { type: "checkbox" });
    box.setAttribute("aria-describedby", id + "-hint");
    box.addEventListener("change", () => send(box.checked ? "on" : "off"));
    const node = make("div", { className: "kv-field kv-check" }, make("label", {}, box, make("span", { textContent: field.label })), hintFor(field, id + "-hint"));
    return { node, show: (raw) => { box.checked = raw === "on" || raw === true; }, mark() {} };
  },

  text(field, send) {
    const id = newId();
    const box = field.lines > 1 ? make("textarea", { id, rows: field.lines, spellcheck: false })
      : make("input", { id, type: "text", className: "kv-line", autocomplete: "off", spellcheck: false });
    box.setAttribute("aria-describedby", id + "-hint");
    box.placeholder = field.placeholder ?? "";
    // A message beyond the server's limit would end the connection: of a longer text only its length is told.
    const tell = (text) => {
      if (text.length <= field.most) return send(text);
      set("");
      send(`\0${text.length}`);
    };
    const set = slow(tell, box);
    const take = (event, length, text) => {
      if (length <= field.most && !text) return;
      event.preventDefault();
      event.stopPropagation();
      if (length > field.most) { set(""); send(`\0${length}`); } else text().then((all) => { set(all); tell(all); });
    };
    box.addEventListener("paste", (event) => take(event, (event.clipboardData?.getData("text") ?? "").length));
    box.addEventListener("dragover", (event) => event.preventDefault());
    box.addEventListener("drop", (event) => {
      const file = event.dataTransfer?.files[0];
      if (file) take(event, file.size, () => file.text());
    });
    const node = make("div", { className: "kv-field" }, make("label", { htmlFor: id, textContent: field.label }), box, hintFor(field, id + "-hint"));
    if (field.suggestions?.length) {
      box.setAttribute("list", id + "-list");
      node.append(make("datalist", { id: id + "-list" }, ...field.suggestions.map((value) => make("option", { value }))));
    }
    const show = (raw) => { if (!raw.startsWith("\0")) set(raw); };
    return { node, show, mark: (bad) => box.setAttribute("aria-invalid", bad) };
  },

  rows(field, send) {
    const body = make("tbody");
    const heads = field.columns.map((c) => make("th", { scope: "col", textContent: c.unit ? `${c.label} (${c.unit})` : c.label }));
    const node = make("div", { className: "kv-field" });
    const grid = make("table", { className: "kv-rows" }, make("caption", { className: "kv-unseen", textContent: field.label }),
      make("thead", {}, make("tr", {}, ...heads, make("td"))), body);
    const add = make("button", { type: "button", textContent: "Add a row" });
    let now = [];
    const change = (next, redraw) => { now = next; if (redraw) draw(); send(now); };
    const cell = (column, r, c) => {
      const label = `${column.label}, row ${r + 1}`;
      const report = (value) => change(now.map((row, i) => (i === r ? row.map((v, j) => (j === c ? value : v)) : row)), false);
      let box;
      if (column.kind === "choice") {
        box = make("select", {}, ...column.options.map((o) => make("option", { value: o, textContent: o })));
        box.value = now[r][c];
        box.addEventListener("change", () => report(box.value));
      } else {
        box = make("input", { type: "text", value: now[r][c], autocomplete: "off", spellcheck: false });
        slow(report, box)(now[r][c]);
      }
      box.setAttribute("aria-label", label);
      return make("td", { className: column.kind === "number" ? "kv-num" : "" }, box);
    };
    const draw = () => {
      body.replaceChildren(...now.map((row, r) => {
        const drop = make("button", { type: "button", textContent: "Remove", disabled: now.length < 2 });
        drop.setAttribute("aria-label", `Remove row ${r + 1}`);
        drop.addEventListener("click", () => { change(now.filter((_, i) => i !== r), true); add.focus(); });
        return make("tr", {}, ...field.columns.map((column, c) => cell(column, r, c)), make("td", {}, drop));
      }));
      add.disabled = now.length >= field.max_rows;
    };
    add.addEventListener("click", () => {
      change([...now, [...now[now.length - 1]]], true);
      body.lastElementChild.querySelector("input, select").focus();
    });
    node.append(make("div", { className: "kv-head" }, make("strong", { textContent: field.label }), add), grid);
    const show = (raw) => { if (JSON.stringify(raw) !== JSON.stringify(now)) { now = raw.map((row) => [...row]); draw(); } };
    return { node, show, mark: (bad) => grid.setAttribute("aria-invalid", bad) };
  },
};
