// Draws one Vega-Lite picture and afterwards takes only rows. Shared by LiveChart and by panels.
const page = (globalThis.kvlibPage ??= { waiting: [] });

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

// host: the element that holds the picture. Calls are queued, so the newest state is drawn last.
function picture(host, model) {
  let drawn = null, box = null, wanted = null, specText = "", running = false, gone = false;
  const note = document.createElement("div");
  note.className = "kv-drawing-problem";

  const fit = (view, spec) => {
    if (!spec.usermeta?.fluid) return;
    const room = Math.floor(host.clientWidth);
    const width = room > 80 ? Math.min(Math.round(spec.width * 1.2), room) : spec.width;
    if (view.width() !== width) view.width(width);
  };

  async function embed(spec, rows) {
    const vegaEmbed = await vegaEmbedFor(model);
    const next = document.createElement("div");
    next.className = "kv-drawing";
    const full = structuredClone(spec);
    full.datasets = { ...(full.datasets ?? {}), ...structuredClone(rows) };
    const made = await vegaEmbed(next, full, { actions: false, renderer: "svg", defaultStyle: false });
    fit(made.view, spec);
    await made.view.runAsync();
    if (gone) { made.finalize(); return; }
    if (box) box.replaceWith(next); else host.append(next);
    drawn?.finalize();
    drawn = made; box = next;
  }

  async function step({ spec, rows }) {
    const text = JSON.stringify(spec);
    if (text !== specText || !drawn) {
      await embed(spec, rows);
      specText = text;
    } else {
      for (const [name, values] of Object.entries(rows)) {
        try { drawn.view.data(name, structuredClone(values)); } catch { /* rows of another picture */ }
      }
      fit(drawn.view, spec);
      await drawn.view.runAsync();
    }
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

  let last = null;
  const observer = new ResizeObserver(() => { if (last && drawn) { wanted ??= last; work(); } });
  observer.observe(host);
  return {
    draw(spec, rows) { last = wanted = { spec, rows }; return work(); },
    close() { gone = true; observer.disconnect(); drawn?.finalize(); },
  };
}
