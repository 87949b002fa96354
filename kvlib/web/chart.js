// Draws one Vega-Lite picture and afterwards takes only rows. Shared by LiveChart and by panels.
const page = (globalThis.kvlibPage ??= { waiting: [] });

// anywidget stops listening to the kernel for good when a widget's script is not ready within two seconds, and
// only says so in the console: on a busy machine a panel would be drawn and then never move. So once we are
// here the widget listens by itself. Where the parts are named otherwise, all stays as it was.
async function keepListening(model) {
  const own = await model.widget_manager?.get_model(model.get("me"));
  const plain = own && Object.getPrototypeOf(Object.getPrototypeOf(own))?._handle_comm_msg;
  if (!plain || typeof own.comm?.on_msg !== "function") return;
  own.comm.on_msg((message) => plain.call(own, message));
}

// The Vega bundle comes with a widget of its own; whoever draws waits for it.
async function vegaEmbedFor(model) {
  const ref = model.get("vega");
  if (ref && !page.embed) model.widget_manager?.get_model(ref.replace("IPY_MODEL_", "")).catch(() => {});
  if (page.embed) return page.embed;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("the chart library did not arrive; run the cell again")), 30000);
    page.waiting.push((embed) => { clearTimeout(timer); resolve(embed); });
  });
}

// Rows travel by columns, so that names and what is alike are sent once: "packed" in live.py.
const valueAt = (column, at) => (Array.isArray(column) ? column[at] : column?.places ? column.values[column.places[at]] : column);
function unpacked({ count, columns }, from = 0) {
  const row = (at) => Object.fromEntries(Object.entries(columns).map(([key, column]) => [key, valueAt(column, at)]));
  return Array.from({ length: Math.max(0, count - from) }, (_, at) => row(from + at));
}

// Tables with what changed of them: "changes" in live.py.
function merged(tables, changed) {
  const whole = (name, { count, columns, kept }) => ({ count, columns: kept ? { ...tables[name].columns, ...columns } : columns });
  return { ...tables, ...Object.fromEntries(Object.entries(changed).map(([name, table]) => [name, whole(name, table)])) };
}

// The newest rows of each widget. They are not set in its model: what a page sets there goes back with the next edit.
// Changes are numbered; where one was lost, all rows are asked for.
const stores = new Map();
const newestRows = (model) => stores.get(model.get("me"))?.rows ?? model.get("rows");
function keepRows(model) {
  const store = { number: model.get("changed_rows").number ?? 0, rows: model.get("rows") };
  stores.set(model.get("me"), store);
  model.on("change:changed_rows", () => {
    const { number, whole, tables } = model.get("changed_rows");
    if (whole || number === store.number + 1) Object.assign(store, { number, rows: merged(whole ? {} : store.rows, tables) });
    else if (number !== store.number) model.send({ do: "rows" });
  });
}

// A spec comes once, with blanks where an axis ends or a title stands; what fills them comes beside it, and is a signal
// of the picture: "made_once" in charts.py.
function withSignals(vega, fills) {
  if (!fills.length) return vega;
  const put = (part) => {
    if (Array.isArray(part)) return part.map(put);
    if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([key, each]) => [key, put(each)]));
    for (const [i, [blank]] of fills.entries()) {
      if (part === blank) return { signal: `kvFill${i}` };
      if (typeof part === "string" && typeof blank === "string") part = part.replaceAll(`"${blank}`, `kvFill${i} + "`);
    }
    return part;
  };
  const signals = fills.map(([, value], i) => ({ name: `kvFill${i}`, value }));
  return { ...put(vega), signals: [...(vega.signals ?? []), ...signals] };
}

const alike = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);

// Rows take the places of those before them, value by value, in the columns that changed: what stays as it was is not drawn anew.
// Rows of other columns take no places: a value that they lack would stay behind.
function replaceRows(view, name, table, was) {
  const names = Object.keys(table.columns), sameNames = was && alike(names, Object.keys(was.columns));
  const changed = sameNames ? names.filter((key) => !alike(table.columns[key], was.columns[key])) : names;
  if (!changed.length && table.count === was?.count) return;
  let held;
  try { held = view.data(name); } catch { return; }   // rows of another picture
  const both = sameNames ? Math.min(held.length, table.count) : 0;
  const change = view.changeset().insert(unpacked(table, both)).remove(held.slice(both));
  for (const key of changed) {
    const column = table.columns[key];
    for (let at = 0; at < both; at += 1) {
      const value = valueAt(column, at);
      if (held[at][key] !== value) change.modify(held[at], key, value);
    }
  }
  view.change(name, change);
}

// How far what is drawn stands out of the plot on each side, in whole pixels: by this, Vega fits a picture into its width.
function margins(view) {
  const { width, height, items } = view.scenegraph().root.items[0];
  const out = { left: 0, top: 0, right: 0, bottom: 0 };
  for (const { bounds } of items) {
    out.left = Math.max(out.left, -bounds.x1);
    out.top = Math.max(out.top, -bounds.y1);
    out.right = Math.max(out.right, bounds.x2 - width);
    out.bottom = Math.max(out.bottom, bounds.y2 - height);
  }
  return Object.values(out).map(Math.ceil).join(" ");
}

// host: the element that holds the picture. Calls are queued, so the newest state is drawn last.
function picture(host, model) {
  let drawn = null, box = null, wanted = null, last = null, running = false, gone = false;
  let spec = null, specText = "", room = host.clientWidth, tables = {}, tight = false, fitted = {};
  const note = document.createElement("div");
  note.className = "kv-drawing-problem";

  // A picture whose spec says "fluid" takes the width there is, within bounds; on a narrower page it is scaled.
  // Where its words do not fit into a narrow one, or meet there, it is drawn in full, and scaled.
  const least = () => spec.width * (tight ? 1 : 0.65);
  const width = () => (room > 80 ? Math.round(Math.max(least(), Math.min(spec.width * 1.2, room - 0.5))) : spec.width);
  // Vega draws all of a picture anew when it fits it: so only where its width is another, or its words need other room.
  async function fit(view) {
    if (!spec.usermeta?.fluid || (fitted.width === width() && fitted.margins === margins(view))) return;
    const wide = width();
    await view.width(wide).runAsync();
    fitted = { width: wide, margins: margins(view) };
  }
  const crowded = () => {
    const svg = box.querySelector("svg"), frame = svg.getBoundingClientRect();
    const seen = [...svg.querySelectorAll("text")].filter((text) => text.getAttribute("opacity") !== "0");
    const words = seen.map((text) => text.getBoundingClientRect()).filter((word) => word.width > 0);
    const cut = ({ left, right }) => right > frame.right + 1 || left < frame.left - 1;
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
    return frame.width > 0 && words.some((word, i) => cut(word) || words.slice(i + 1).some((other) => meet(word, other)));
  };
  async function widen() {
    if (tight || !spec.usermeta?.fluid || width() >= spec.width || !crowded()) return;
    tight = true;
    await fit(drawn.view);
  }

  async function embed({ rows, fills }) {
    const vegaEmbed = await vegaEmbedFor(model);
    const next = document.createElement("div");
    next.className = "kv-drawing";
    next.setAttribute("aria-hidden", "true");  // the picture is one image, named by its description
    const full = structuredClone(spec);
    full.datasets = { ...(full.datasets ?? {}) };
    tables = rows;
    for (const [name, table] of Object.entries(rows)) full.datasets[name] = unpacked(table);
    const patch = (vega) => withSignals(vega, fills);
    const made = await vegaEmbed(next, full, { actions: false, renderer: "svg", defaultStyle: false, patch });
    fitted = {};
    await fit(made.view);
    if (gone) { made.finalize(); return; }
    if (box) box.replaceWith(next); else host.append(next);
    drawn?.finalize();
    drawn = made; box = next;
  }

  async function step(want) {
    const sameSpec = want.spec === spec || JSON.stringify(want.spec) === specText;
    spec = want.spec;
    if (!sameSpec || !drawn) {
      specText = "";
      tight = false;
      await embed(want);
      specText = JSON.stringify(spec);
    } else {
      const were = tables;
      tables = want.rows;
      for (const [name, table] of Object.entries(tables)) replaceRows(drawn.view, name, table, were[name]);
      for (const [i, [, value]] of want.fills.entries()) drawn.view.signal(`kvFill${i}`, value);
      await drawn.view.runAsync();
      await fit(drawn.view);
    }
    if (drawn) await widen();
    note.remove();
  }

  async function work() {
    if (running) return;
    running = true;
    while (wanted && !gone) {
      const now = wanted;
      wanted = null;
      try { await step(now); } catch (problem) {
        console.warn("kvlib picture:", problem);
        note.textContent = "The picture could not be drawn: " + problem.message;
        host.append(note);
      }
    }
    running = false;
  }

  const observer = new ResizeObserver((entries) => {
    room = entries[entries.length - 1].contentRect.width;
    if (spec && room >= spec.width) tight = false;
    if (drawn && last && spec.usermeta?.fluid && fitted.width !== width()) { wanted ??= last; work(); }
  });
  observer.observe(host);
  return {
    draw(spec, rows, fills = []) { last = wanted = { spec, rows, fills }; return work(); },
    close() { gone = true; observer.disconnect(); drawn?.finalize(); },
  };
}
