// Exercises checked in a page without a kernel. What is right, and which slips are known, comes in a table that the
// notebook's own checks made (checks.py); here what was typed is read and compared, in the words of kvlib/exercise.py.
globalThis.kvlibChecks = (() => {
  const yes = (text) => ({ state: "right", text });
  const no = (text) => ({ state: "wrong", text });
  const open = (text) => ({ state: "open", text });
  const OPEN = "Type your answer, then press Check.";
  const ended = (text) => (text.endsWith("?") ? text : text + ".");
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

  // -- figures in words, as Python writes them ----------------------------------------------------------------
  // To a number of decimals, a half to the even neighbour.
  const fixed = (value, digits) => {
    const tail = Math.abs(value) < 2 ** 52 ? value.toFixed(Math.min(100, digits + 70)).split(".")[1].slice(digits) : "";
    if (!/^50*$/.test(tail)) return value.toFixed(digits);
    const down = Math.floor(Math.abs(value) * 10 ** digits);
    return ((value < 0 ? -1 : 1) * (down + (down % 2)) / 10 ** digits).toFixed(digits);
  };
  const grouped = (text) => text.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
  const whole = (value) => (Math.abs(value) < 1e21 ? fixed(value, 0) : BigInt(value).toString());
  const number = (value) => {
    if (Number.isInteger(value) || Math.abs(value) >= 1e4) return grouped(whole(value));
    const [mantissa, power] = value.toExponential(3).split("e"), exponent = Number(power);
    const bare = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    const sign = exponent < 0 ? "-" : "+";
    if (exponent < -4 || exponent >= 4) return `${bare(mantissa)}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
    return grouped(bare(fixed(value, 3 - exponent)));
  };
  const quoted = (text) => {
    const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
    const hex = (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`;
    const safe = text.replace(/[\\]/g, "\\\\").replace(/[\u0000-\u001f\u007f-\u009f]/g, hex);
    return quote + (quote === "'" ? safe.replace(/'/g, "\\'") : safe) + quote;
  };
  const joined = (text) => text.split(/\s+/).filter(Boolean).join(" ");
  const short = (text) => {
    const letters = [...joined(text)];
    return quoted(letters.length <= 40 ? letters.join("") : letters.slice(0, 39).join("") + "…");
  };

  // -- what was typed: a number with or without a unit, or a calculation ----------------------------------------
  const SHAPE = /^([-+−]?[\d.,_'\s]*\d(?:\.(?!\d))?(?:e[-+]?\d+)?)\s*([^]*)$/i;
  const has = (table, key) => Object.hasOwn(table, key);

  function read(answer, words) {
    const found = SHAPE.exec(answer.trim().replace(/^[≈~= ]+/, ""));
    if (!found) throw `There is no number in ${short(answer)}; one is expected, such as 12 or "4.5 GiB".`;
    const word = found[2].trim().replace(/\.+$/, ""), low = word.toLowerCase();
    const unit = has(words.bytes, word) ? word : has(words.spoken, low) ? words.spoken[low] : word ? null : "";
    if (unit === null) throw `${short(word)} is not a unit that is known here; write a number such as 12, or "4.5 GiB".`;
    return [figure(found[1], answer), unit];
  }

  function figure(typed, answer) {
    let text = typed.replace(/[\s_']/g, "").replace("−", "-");
    if (/^[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$/.test(text)) text = text.replaceAll(",", "");
    else if (/^[-+]?[1-9]\d{0,2}(\.\d{3}){2,}$/.test(text)) text = text.replaceAll(".", "");
    else if (text.split(",").length === 2 && !text.includes(".")) text = text.replace(",", ".");
    if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) {
      throw `${short(answer)} cannot be read as one number; write it as 681600, 681,600 or 4.5.`;
    }
    const value = Number(text);
    if (!Number.isFinite(value)) throw `Found ${short(answer)}; a number is expected, such as 12 or 4.5.`;
    return value;
  }

  // 36 * 8 * 128 * 2, with brackets, // and **; null where the text is no calculation.
  function calculated(text) {
    const tokens = text.replace(/[×·]/g, "*").replace(/÷/g, "/").replace(/−/g, "-").replace(/(\d)[_,](?=\d{3}(?!\d))/g, "$1")
      .match(/\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+|\*\*|\/\/|[-+*/()%]|\S/gi) ?? [];
    if (tokens.length < 3 || !tokens.some((t, i) => i && /^[-+*/%]/.test(t))) return null;
    let at = 0;
    const fail = () => { throw new SyntaxError(); };
    const one = () => {
      const token = tokens[at++];
      if (token === "(") { const inside = sum(); return tokens[at++] === ")" ? inside : fail(); }
      return /^[\d.]/.test(token ?? "") ? Number(token) : fail();
    };
    const power = () => { const base = one(); if (tokens[at] !== "**") return base; at++; return base ** signed(); };
    const signed = () => (tokens[at] === "-" ? (at++, -signed()) : tokens[at] === "+" ? (at++, signed()) : power());
    const product = () => {
      let left = signed();
      while (["*", "/", "//", "%"].includes(tokens[at])) {
        const what = tokens[at++], right = signed();
        const floor = Math.floor(left / right);
        left = { "*": left * right, "/": left / right, "//": floor, "%": left - right * floor }[what];
      }
      return left;
    };
    const sum = () => {
      let left = product();
      while (tokens[at] === "+" || tokens[at] === "-") left = tokens[at++] === "+" ? left + product() : left - product();
      return left;
    };
    try {
      const value = sum();
      return at === tokens.length && Number.isFinite(value) ? value : null;
    } catch { return null; }
  }

  // -- the verdict ------------------------------------------------------------------------------------------------
  const bareWord = (text) => {
    const strip = (given, letters) => given.replace(new RegExp(`^[${letters}]+|[${letters}]+$`, "g"), "");
    return strip(strip(text.trim(), escaped("`'\" ")).replaceAll("=", " ").replaceAll("-", "_").toLowerCase(), "_");
  };

  function word(row, answer) {
    const said = joined(answer);
    if (bareWord(said) === bareWord(row.right)) return right(row, said);
    const slip = row.slips.find(([each]) => bareWord(said) === bareWord(each));
    return no(slip ? `Not yet: ${said} – ${ended(slip[1])}` : `Not yet: ${short(said)}. Read the question once more, or ask for a hint.`);
  }

  const right = (row, said) => yes(`Right: ${said}.` + (row.because ? ` ${row.because}` : ""));

  function figured(row, value, unit, words) {
    const near = (a, b) => Math.abs(a - b) <= Math.abs(b) * row.within / 100;
    const asked = row.unit ? `${row.unit} are asked for` : "a plain number is asked for";
    const said = (n) => `${number(n)} ${words.counts.includes(row.unit) && n === 1 ? row.unit.slice(0, -1) : row.unit}`.trim();
    const rounded = (n, slip) => {
      const text = String(n), decimals = text.split(".")[1] ?? "";
      return decimals && !decimals.includes("e") && Number(fixed(slip, decimals.length)) === n;
    };
    const wrong = (n, given) => {
      const slip = row.slips.find(([each]) => near(n, each) || rounded(n, each));
      if (slip) return no(`Not yet: ${said(n)} – ${ended(slip[1])}`);
      if (!given && has(words.bytes, row.unit)) {
        for (const other of ["B", "KiB", "MiB", "GiB"]) {
          if (other !== row.unit && near(n * words.bytes[other] / words.bytes[row.unit], row.right)) {
            return no(`Not yet: that would be right in ${other}; ${asked}. Or write the unit: "${number(n)} ${other}".`);
          }
        }
      }
      return no(`Not yet: ${said(n)} is too ${n > row.right ? "large" : "small"}.`);
    };
    if (unit && unit !== row.unit) {
      if (has(words.bytes, unit) && has(words.bytes, row.unit)) {
        const there = value * words.bytes[unit] / words.bytes[row.unit], meant = words.decimal[unit];
        if (near(there, row.right)) return right(row, said(there));
        if (meant && near(value * words.bytes[meant] / words.bytes[row.unit], row.right)) {
          return no(`Not yet: the figure is right in ${meant}, and ${unit} was written, steps of 1,000 and not of 1,024.`);
        }
        return wrong(there, unit);
      }
      if (unit === "%" && row.unit === "") value /= 100;
      else if (unit !== "x" || !["", "requests", "sequences"].includes(row.unit)) {
        return no(`Not yet: that is a figure in ${unit}; ${asked}.`);
      }
    }
    return near(value, row.right) ? right(row, said(value)) : wrong(value, unit);
  }

  const same = (stop, typed) => stop === typed || (typed !== "" && Number(stop) === Number(typed));

  // Flags are looked up: each setting was judged beforehand.
  function flags(row, answer) {
    const text = answer.trim();
    if (!/^(-|vllm)/.test(text)) return no(row["not a flag"].replace("'§'", () => quoted(text.slice(0, 40))));
    const words = text.split(/[\s=]+/).filter((each) => each && each !== "\\"), at = row.flags.map(() => 0), seen = new Set(), refused = [];
    const missing = (what) => open(`${what} was not worked out for this page. ${row.page}`);
    if (words[0] === "vllm") words.splice(0, 2);
    if (words.length && !words[0].startsWith("-")) words.shift();
    while (words.length) {
      const typed = words.shift(), spelled = typed.replace(/^-+/, "").replaceAll("-", "_"), name = row.short[spelled] ?? spelled;
      if (has(row.refused, name)) {
        const value = words.shift() ?? "";
        if (!/^[^-]/.test(value)) return missing(quoted(`${typed} ${value}`.trim().slice(0, 40)));
        if (value !== "1") refused.push(row.refused[name]);
        continue;
      }
      const which = row.flags.findIndex(([each]) => each === name);
      if (which < 0 || seen.has(name)) return missing(quoted(typed.slice(0, 40)));
      seen.add(name);
      const stops = row.flags[which][1];
      const place = stops.every((each) => !each.length) ? 1 : stops.findIndex((each) => each.some((text) => same(text, words[0] ?? "")));
      if (place < 0) return missing(quoted(`${typed} ${words[0] ?? ""}`.trim().slice(0, 40)));
      if (stops[place].length) words.shift();
      at[which] = place;
    }
    if (refused.length) return no(refused[0]);
    const [state, said] = row.said[row.places[row.flags.reduce((sum, [, stops], i) => sum * stops.length + at[i], 0)]];
    return { state, text: said };
  }

  function check(table, key, answer) {
    const row = table.exercises[key];
    if (!answer.trim()) return open(OPEN);
    if (row.places) return flags(row, answer);
    if (typeof row.right === "string") return word(row, answer);
    const sum = calculated(answer);
    if (sum !== null) return figured(row, sum, "", table);
    try {
      return figured(row, ...read(answer, table), table);
    } catch (problem) {
      if (typeof problem !== "string") throw problem;
      return no(problem);
    }
  }

  // -- the page ---------------------------------------------------------------------------------------------------
  let table = null, arrive = null;
  const arrived = (packed) => arrive?.(packed);
  const load = () => (table ??= new Promise((resolve, reject) => {
    arrive = async (packed) => {
      const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
      resolve(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json());
    };
    const node = document.createElement("script");
    node.src = "assets/checks.js";
    node.onerror = () => reject(new Error("assets/checks.js is missing"));
    document.head.append(node);
  }));
  const SIGNS = { right: "✓", wrong: "✗", open: "…", hint: "?" };

  function mount(form) {
    const box = form.querySelector("input"), said = form.querySelector(".check-said"), key = form.dataset.check;
    const show = ({ state, text }) => {
      said.dataset.state = state;
      said.textContent = `${SIGNS[state]} ${text}`;
      if (state === "right") form.dataset.right = "";
      count();
    };
    const fail = (problem) => show(open(`This cannot be checked here (${problem.message}); the notebook can.`));
    const ask = (go) => load().then((found) => show(go(found)), fail);
    form.hidden = false;
    form.nextElementSibling.remove();      // the words for a page without scripts
    form.addEventListener("submit", (event) => { event.preventDefault(); ask((found) => check(found, key, box.value)); });
    for (const button of form.querySelectorAll("button[value]")) {
      const step = Number(button.value);
      const hint = (found) => ({ state: "hint", text: `Hint ${step} of 2: ${found.exercises[key].hints[step - 1]}` });
      button.addEventListener("click", () => ask(hint));
    }
  }

  // Where the notebook says how far one came, the page counts its own.
  function count() {
    const line = document.querySelector("#progress .output, #progress .check-count");
    if (!line) return;
    const forms = [...document.querySelectorAll("form.check")], done = forms.filter((form) => "right" in form.dataset).length;
    line.className = "check-count";
    line.textContent = `${done} of ${forms.length} right on this page, since it was opened.`;
  }

  if (globalThis.document) {
    document.querySelectorAll("form.check").forEach(mount);
    count();
  }
  return { arrived, check, load };
})();
