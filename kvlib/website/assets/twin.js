// Twins of the notebooks' controls: the panel's own card (kvlibCard) on a table of answers worked out beforehand.
// Nothing is calculated here; a setting that is not in the table is said to be missing.
globalThis.kvlibTwins = (() => {
  const waiting = {};
  const arrived = (name, packed) => waiting[name]?.(packed);

  const script = (src) => new Promise((resolve, reject) => {
    const node = document.createElement("script");
    node.src = src;
    node.onload = resolve;
    node.onerror = () => reject(new Error(`${src} is missing`));
    document.head.append(node);
  });
  let vega = null;
  const drawer = () => (vega ??= script("assets/vega.js"));

  // A page from a folder may not fetch, so the table comes as a packed script.
  async function table(name) {
    const packed = await new Promise((resolve, reject) => {
      waiting[name] = resolve;
      script(`twins/${name}.js`).catch(reject);
    });
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  const bare = (text) => String(text).replace(/[,_\s]/g, "");
  const safe = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

  // What the card takes for its widget: traits, events, and the answers that Python gives in a notebook.
  class Model {
    constructor(data) {
      this.data = data;
      this.heard = {};
      this.traits = {
        vega: "", me: "", title: data.title, key: data.key, fields: data.fields, raw: { ...data.raw }, patch: {}, seen: 0,
        actions: [], takeaways: [], undo: "", bad: [], stale: false, error: "", fault: "", predict: {},
      };
      this.given = "";
      this.ask("", "", false);
      this.typed = { ...data.raw };
      this.look();
    }

    get(name) { return this.traits[name]; }

    set(name, value) {
      if (JSON.stringify(this.traits[name]) === JSON.stringify(value)) return;
      this.traits[name] = value;
      for (const go of this.heard["change:" + name] ?? []) go();
    }

    on(events, go) { for (const each of events.split(" ")) (this.heard[each] ??= new Set()).add(go); }
    off(events, go) { for (const each of events.split(" ")) this.heard[each]?.delete(go); }

    save_changes() {
      const raw = { ...this.get("raw") };
      const changed = Object.keys(raw).filter((name) => raw[name] !== this.typed[name]);
      for (const name of changed) {
        const moves = this.data.moves[name] ?? {};
        Object.assign(raw, moves[raw[name]] ?? moves["*"] ?? {});
      }
      this.typed = raw;
      this.set("raw", raw);
      this.look();
    }

    send({ do: what, text }) {
      if (what === "reset") {
        this.typed = { ...this.data.raw };
        this.set("raw", { ...this.data.raw });
        this.ask("", "", false);
        this.look();
      } else if (what === "reveal") this.ask(this.given, this.data.predict.answer, false);
      else if (what === "guess") this.guess(text.trim());
    }

    ask(given, verdict, problem) {
      this.given = given;
      const { question, options, unit } = this.data.predict;
      this.set("predict", question ? { question, options, unit, given, cleared: !given, verdict, problem } : {});
    }

    guess(text) {
      const { options, unit, answer, drawn } = this.data.predict;
      if (options ? !options.includes(text) : !text || !Number.isFinite(Number(bare(text)))) {
        return this.ask(text, options ? "Choose one of the answers first." : "My guess: type a number such as 20.", true);
      }
      this.ask(text, `You said ${safe(text)}${unit ? " " + unit : ""}. ${answer}${drawn ? " (Only the notebook draws your guess into the picture.)" : ""}`, false);
    }

    // The place of the setting in the table, or the inputs that stand at no stop of this page.
    place() {
      let place = 0;
      const bad = [];
      for (const [name, stops] of this.data.stops) {
        const raw = this.get("raw")[name];
        let at = stops.indexOf(raw);
        if (at < 0 && bare(raw)) at = stops.findIndex((stop) => Number(bare(stop)) === Number(bare(raw)));
        if (at < 0) bad.push(name);
        place = place * stops.length + at;
      }
      return { place, bad };
    }

    look() {
      const { place, bad } = this.place();
      this.set("bad", bad);
      if (bad.length) return this.refuse(bad.map((name) => this.missing(name)).join(" "));
      const { places, pools } = this.data;
      const error = pools.error[places.error[place]];
      if (error) return this.refuse(error);
      for (const name of ["answer", "note", "table"]) this.set(name, pools[name][places[name][place]]);
      for (const name of ["descriptions", "specs", "fills"]) {
        this.set(name, pools[name][places[name][place]].map((each) => pools[name + "-each"][each]));
      }
      this.set("rows", Object.fromEntries(pools.tables[places.tables[place]].map(([name, at]) => [name, pools.rows[at]])));
      this.set("error", "");
      this.set("stale", false);
    }

    refuse(sentence) {
      this.set("error", sentence);
      this.set("stale", true);
    }

    missing(name) {
      const field = this.data.fields.find((each) => each.name === name);
      return `${field.label}: this page has ${this.data.offered[name]}; the notebook takes any value of its range.`;
    }
  }

  const made = {};
  async function mount(box) {
    const name = box.dataset.twin;
    try {
      const [data] = await Promise.all([table(name), drawer()]);
      const model = (made[name] = new Model(data));
      const live = document.createElement("div");
      const says = document.createElement("details");
      says.className = "twin-says";
      const summary = document.createElement("summary");
      summary.textContent = `${data.count.toLocaleString("en-US")} settings, without a kernel: which, and what the notebook adds`;
      const words = document.createElement("p");
      words.innerHTML = data.says;
      says.append(summary, words);
      kvlibCard.render({ model, el: live });
      box.replaceChildren(live, says);
      box.dataset.ready = "";
      dispatchEvent(new Event("kvlib-drawn"));
    } catch (problem) {
      console.warn("kvlib twin:", problem);
      const wait = box.querySelector(".twin-wait");
      if (wait) wait.textContent = `This control could not be set up here (${problem.message}); the notebook has it.`;
    }
  }

  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      mount(target);
    }
  }, { rootMargin: "500px" });
  // The page first, then its controls: Vega and the tables are the heavy part.
  const idle = globalThis.requestIdleCallback ?? ((go) => setTimeout(go, 100));
  addEventListener("load", () => idle(() => document.querySelectorAll("[data-twin]").forEach((box) => near.observe(box))));
  return { arrived, made };
})();
