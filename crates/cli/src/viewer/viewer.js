// The second part of the viewer's script: it draws the lines in sight, answers the pointer, and searches. Texts from outside
// are set as text, never as HTML.
// ---- A list that draws what is in sight --------------------------------------------------------------------------

const virtual = (view, draw) => {
  const space = el("div", "space");
  view.replaceChildren(space);
  let count = 0, from = -1, to = -1;
  const paint = (force) => {
    if (!view.clientHeight) return;
    const first = Math.max(0, Math.floor(view.scrollTop / ROW) - 20);
    const end = Math.min(count, Math.ceil((view.scrollTop + view.clientHeight) / ROW) + 20);
    if (!force && first === from && end === to) return;
    [from, to] = [first, end];
    const rows = [];
    for (let i = first; i < end; i++) {
      const row = draw(i);
      row.style.top = i * ROW + "px";
      row.dataset.row = i;
      rows.push(row);
    }
    space.replaceChildren(...rows);
  };
  view.addEventListener("scroll", () => paint(false), { passive: true });
  addEventListener("resize", () => paint(true));
  return {
    paint: () => paint(true),
    size(n) { count = n; space.style.height = n * ROW + "px"; paint(true); },
    reveal(i) {
      const top = i * ROW;
      if (top < view.scrollTop + 2 * ROW || top > view.scrollTop + view.clientHeight - 3 * ROW) {
        view.scrollTop = Math.max(0, top - view.clientHeight / 3);
      }
      paint(true);
    },
  };
};

// ---- A line with its parts coloured ------------------------------------------------------------------------------

const PARTS = /("(?:[^"\\]|\\.)*")|([%bek]\d+)(?![\w.])|((?:f64|f32|f16|bf16|i64|i32|u32|u8|bool)\[[^\]]*\])/g;
const LEAD = /^(\s*)((?:[%e]\d+(?:, )?)+ = )?([a-z_][\w$]*)?/;
const coloured = (text, where, chosen) => {
  const line = el("span", "line");
  const head = LEAD.exec(text);
  const opAt = head[3] ? head[1].length + (head[2] || "").length : -1;
  let at = 0;
  const plain = (to) => {
    if (at < to) {
      const part = text.slice(at, to);
      if (opAt >= at && opAt < to) {
        const end = Math.min(to, opAt + head[3].length);
        line.append(text.slice(at, opAt), el("span", "op", text.slice(opAt, end)), text.slice(end, to));
      } else line.append(part);
    }
    at = to;
  };
  for (const m of text.matchAll(PARTS)) {
    // A letter in the middle of a word is no name.
    if (m[2] && m.index > 0 && /[\w.]/.test(text[m.index - 1])) continue;
    plain(m.index);
    const part = el("span", m[1] ? "str" : m[2] ? "val" : "ty", m[0]);
    if (m[2]) {
      part.dataset.v = m[0];
      part.dataset.where = where;
      if (m[0] === chosen) part.classList.add("on");
    }
    line.append(part);
    at = m.index + m[0].length;
  }
  plain(text.length);
  return line;
};

// ---- What the pointer shows --------------------------------------------------------------------------------------

const tip = $("#tip");
const show = (event, lines) => {
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const right = event.clientX + 16 + box.width < innerWidth;
  tip.style.left = Math.max(6, right ? event.clientX + 16 : event.clientX - 16 - box.width) + "px";
  const below = event.clientY + 18 + box.height < innerHeight;
  tip.style.top = Math.max(6, below ? event.clientY + 18 : event.clientY - 12 - box.height) + "px";
};
const hide = () => { tip.hidden = true; };
const say = (text, cls) => el("div", "text " + (cls || ""), text);
const fromSource = (n) => {
  const [place, text] = facts.sources[n] || ["", ""];
  if (!place) return [];
  return text ? [say(place, "soft"), say(text, "mono")] : [say(place, "soft")];
};
const ROLES = {
  given: "there when the call begins", constant: "a constant beside the program",
  inlined: "computed wherever it is read", recomputed: "computed again in each kernel that reads it", view: "a view: it costs nothing",
  fused: "stays in registers", stored: "written to memory",
};
const bufferLine = (b) => {
  const [name, type, size, place, at, first, end] = facts.buffers[b];
  const where = place === "arena" ? "arena at " + num(at) : place === "state" ? "state " + (facts.states[at] || {}).name : place;
  return `b${b} ${name}: ${type}, ${bytes(size)}, ${where}, k${first} to k${end}`;
};
const fate = (v) => {
  const [role, , kernel, buffer] = facts.values[v] || [];
  if (!role) return [];
  const lines = [say((kernel === null ? "" : `k${kernel}: `) + ROLES[role])];
  if (buffer !== null) lines.push(say(bufferLine(buffer), "soft"));
  return lines;
};
const about = (name, where) => {
  const n = +name.slice(1), lines = [el("strong", "", name)];
  if (name[0] === "%" && where >= 0) {
    const p = pass(where), def = p.defs.get(n);
    if (def === undefined) return lines;
    const uses = (p.uses.get(n) || []).length;
    lines[0].textContent = fill(p.lines[def]).trim();
    lines[0].className = "mono";
    lines.push(say(uses === 1 ? "1 use" : num(uses) + " uses", "soft"), ...fromSource(p.lines[def].source));
    if (isLast(where)) lines.push(...fate(n));
  } else if (name[0] === "%") {
    const v = facts.values[n];
    if (v) lines.push(say(v[1]), ...fromSource(v[4]), ...fate(n));
  } else if (name[0] === "b" && facts.buffers[n]) lines.push(say(bufferLine(n)));
  else if (name[0] === "k" && facts.kernels[n]) {
    const k = facts.kernels[n];
    lines.push(say(`${k[NAME]}${k[NOTE] && ": " + k[NOTE]}`), say(`${si(k[FLOPS])}FLOP, ${bytes(k[READ])} read, ${bytes(k[WRITTEN])} written`, "soft"));
    const seen = new Set(k[VALUES].map((v) => (facts.values[v] || [])[4]).filter(Boolean));
    [...seen].slice(0, 5).forEach((s) => lines.push(...fromSource(s).slice(0, 1)));
    if (seen.size > 5) lines.push(say(`and ${seen.size - 5} more lines of source`, "soft"));
  } else return null;
  return lines;
};
document.addEventListener("pointermove", (event) => {
  if (event.target.closest && event.target.closest(".plan")) return;
  const value = event.target.closest?.("[data-v]");
  if (value) {
    const lines = about(value.dataset.v, +(value.dataset.where ?? -1));
    return lines ? show(event, lines) : hide();
  }
  const line = event.target.closest?.("[data-source]");
  const source = line ? fromSource(+line.dataset.source) : [];
  if (source.length) show(event, [say(line.dataset.full, "mono"), ...source]);
  else if (line && line.dataset.full) show(event, [say(line.dataset.full, "mono")]);
  else hide();
});
document.addEventListener("pointerleave", hide);

// ---- Passes ------------------------------------------------------------------------------------------------------

const code = $("#passes .code"), bar = $("#passes .bar"), foot = $("#passes .foot");
// `chosen` is a value's name on either side: two passes number the same value differently.
let left = 0, right = 0, rows = [], shown = [], unfolded = new Set(), chosen = ["", ""], query = "";
const cell = (p, which, at, kind, side) => {
  const c = el("span", "cell " + kind);
  if (at < 0) { c.classList.add("none"); return c; }
  const text = fill(p.lines[at]);
  c.dataset.source = p.lines[at].source;
  c.dataset.full = text.trim();
  c.append(el("span", "no", String(at + 1)), coloured(text, which, chosen[side]));
  c.dataset.side = side;
  if (query && text.toLowerCase().includes(query)) c.classList.add("hit");
  return c;
};
const codeList = virtual(code, (i) => {
  const item = shown[i];
  if (item.fold) {
    const row = el("div", "row fold");
    row.append(el("button", "", `${num(item.fold[1] - item.fold[0])} unchanged lines`));
    row.firstChild.type = "button";
    return row;
  }
  const r = rows[item.at], row = el("div", "row " + r.kind);
  row.append(cell(pass(left), left, r.l, r.kind, 0), cell(pass(right), right, r.r, r.kind, 1));
  return row;
});
const folded = () => {
  const near = new Uint8Array(rows.length);
  rows.forEach((r, i) => {
    if (r.kind === "same") return;
    for (let j = Math.max(0, i - CONTEXT); j <= Math.min(rows.length - 1, i + CONTEXT); j++) near[j] = 1;
  });
  const changed = rows.some((r) => r.kind !== "same");
  shown = [];
  for (let i = 0; i < rows.length;) {
    let end = i;
    while (changed && end < rows.length && !near[end]) end += 1;
    if (end - i >= LEAST && !unfolded.has(i)) { shown.push({ fold: [i, end] }); i = end; }
    else { const to = Math.max(end, i + 1); for (; i < to; i++) shown.push({ at: i }); }
  }
  codeList.size(shown.length);
};
const all = el("button", "all", "Unfold all");
all.type = "button";
all.addEventListener("click", () => {
  shown = rows.map((_, at) => ({ at }));
  codeList.size(shown.length);
});
const compare = () => {
  rows = rowsOf(left, right);
  chosen = ["", ""];
  unfolded = new Set();
  folded();
  code.scrollTop = 0;
  const count = (kind) => rows.filter((r) => r.kind === kind).length;
  const [edit, moved, add, del] = ["edit", "moved", "add", "del"].map(count);
  const name = (i) => facts.passes[i].name;
  foot.replaceChildren(
    el("span", "", `${name(left)}: ${num(pass(left).lines.length)} lines`), el("span", "", `${name(right)}: ${num(pass(right).lines.length)} lines`),
  );
  if (alike(pass(left), pass(right))) {
    foot.append(el("span", "c-del", `${num(del + edit)} removed`), el("span", "c-add", `${num(add + edit)} added`),
      el("span", "c-moved", `${num(moved)} with other operands`));
  } else foot.append(el("span", "", `a ${sort(pass(left))} and a ${sort(pass(right))} stand beside each other, without marks`));
  foot.append(all);
  for (const b of bar.querySelectorAll("button[data-pass]")) b.classList.toggle("on", +b.dataset.pass === right && left === Math.max(0, right - 1));
  $("#from").value = left;
  $("#to").value = right;
  note();
};
const choose = (i, j) => { left = i; right = j; compare(); };
// Marks a value on its side, and on the other side the one that corresponds to it.
const mark = (name, side) => {
  const map = rows.map, n = +name.slice(1), prefix = name[0];
  let other = "";
  if (name && pass(left) === pass(right)) other = name;
  else if (name && map && side === 0 && map.has(name)) other = prefix + map.get(name);
  else if (name && map && side === 1) {
    for (const [from, to] of map) if (from[0] === prefix && to === n) { other = from; break; }
  }
  chosen = side === 0 ? [name, other] : [other, name];
};
const select = (id, label) => {
  const s = el("select");
  s.id = id;
  facts.passes.forEach((p, i) => { const o = el("option", "", p.name); o.value = i; s.append(o); });
  s.addEventListener("change", () => choose(+$("#from").value, +$("#to").value));
  return el("label", "pick", label + " ", s);
};
if (facts.passes.length) {
  const steps = el("div", "steps");
  facts.passes.forEach((p, i) => {
    const b = el("button", p.same ? "same" : "", p.name);
    b.type = "button";
    b.dataset.pass = i;
    b.title = p.same ? "this pass changed nothing" : "what this pass changed";
    b.addEventListener("click", () => choose(Math.max(0, i - 1), i));
    steps.append(b);
  });
  bar.append(steps, select("from", "compare"), select("to", "with"));
} else code.append(el("p", "nothing", "The texts of the passes were not kept."));
code.addEventListener("click", (event) => {
  const row = event.target.closest(".row"), item = row && shown[+row.dataset.row];
  if (!item) return;
  if (item.fold) { unfolded.add(item.fold[0]); folded(); return; }
  const value = event.target.closest("[data-v]"), side = +(value?.closest(".cell").dataset.side ?? 0);
  mark(value && value.dataset.v !== chosen[side] ? value.dataset.v : "", side);
  codeList.paint();
});

// ---- Kernels -----------------------------------------------------------------------------------------------------

const list = $("#kernels .list"), detail = $("#kernels .detail");
const moved = (k) => k[READ] + k[WRITTEN];
const mostBytes = Math.max(1, ...facts.kernels.map(moved)), mostFlops = Math.max(1, ...facts.kernels.map((k) => k[FLOPS]));
let order = facts.kernels.map((_, i) => i), kernel = 0;
const meter = (share, cls) => {
  const m = el("span", "meter " + cls), fillBar = el("i");
  fillBar.style.width = (100 * share).toFixed(1) + "%";
  m.append(fillBar);
  return m;
};
const kernelList = virtual(list, (i) => {
  const at = order[i], k = facts.kernels[at];
  const row = el("div", "row kernel " + k[KIND] + (at === kernel ? " on" : ""));
  row.dataset.v = "k" + at;
  row.dataset.kernel = at;
  row.append(el("span", "id", "k" + at), el("span", "what", k[NAME], el("span", "note", k[NOTE])), el("span", "n", si(k[FLOPS])), meter(k[FLOPS] / mostFlops, "f"),
    el("span", "n", bytes(moved(k))), meter(moved(k) / mostBytes, "b"));
  return row;
});
const body = (packed, where) => {
  const pre = el("div", "body");
  const lines = unpack(packed).map(fill);
  const more = () => {
    const from = pre.querySelectorAll(".row-text").length;
    pre.querySelector("button")?.remove();
    lines.slice(from, from + 400).forEach((text) => pre.append(el("div", "row-text", coloured(text, where, ""))));
    if (from + 400 < lines.length) {
      const b = el("button", "", `${num(lines.length - from - 400)} more lines`);
      b.type = "button";
      b.addEventListener("click", more);
      pre.append(b);
    }
  };
  more();
  return pre;
};
const chip = (name) => {
  const c = el("span", "val chip", name);
  c.dataset.v = name;
  return c;
};
const fact = (dl, label, value) => dl.append(el("div", "", el("dt", "", label), el("dd", "", value)));
const table = (heads, cells) => {
  const t = el("table"), head = el("tr"), tbody = el("tbody");
  heads.forEach(([h, cls]) => head.append(el("th", cls || "", h)));
  t.append(el("thead", "", head), tbody);
  cells.forEach((row) => {
    const tr = el("tr");
    row.forEach((c, i) => tr.append(el("td", heads[i][1] || "", c)));
    tbody.append(tr);
  });
  return el("div", "scroll", t);
};
const long = (heads, cells) => {
  const box = el("div");
  box.append(table(heads, cells.slice(0, 300)));
  if (cells.length > 300) {
    const b = el("button", "more", `${num(cells.length - 300)} more`);
    b.type = "button";
    b.addEventListener("click", () => box.replaceChildren(table(heads, cells)));
    box.append(b);
  }
  return box;
};
const sourceCell = (n) => {
  const [place, text] = facts.sources[n] || ["", ""];
  const c = el("span", "src", place);
  if (text) c.append(el("code", "", text));
  return c;
};
const showKernel = (i) => {
  const k = facts.kernels[i];
  if (!k) { detail.replaceChildren(el("p", "nothing", "The schedule has no kernel.")); return; }
  kernel = i;
  kernelList.paint();
  const roles = k[VALUES].map((v) => (facts.values[v] || [])[0]);
  const fused = roles.filter((r) => r === "fused" || r === "recomputed").length;
  const dl = el("dl", "facts");
  fact(dl, "Operations", si(k[FLOPS]) + "FLOP");
  fact(dl, "Read", bytes(k[READ]));
  fact(dl, "Written", bytes(k[WRITTEN]));
  fact(dl, "FLOP a byte", (k[FLOPS] / Math.max(1, moved(k))).toPrecision(3));
  fact(dl, "Values computed", num(k[VALUES].length));
  fact(dl, "Never in memory", num(fused));
  const waits = k[VALUES].flatMap((v) => {
    const flat = (facts.values[v] || [])[5] || [], out = [];
    for (let j = 0; j < flat.length; j += 2) out.push([v, flat[j], flat[j + 1]]);
    return out;
  });
  const label = (v) => { const c = el("span", "", chip("%" + v), " " + (facts.values[v] || ["", ""])[1]); return c; };
  detail.replaceChildren(el("h2", "", `k${i}  ${k[NAME]}`), el("p", "soft", [k[KIND], k[NOTE]].filter(Boolean).join(": ")), dl,
    el("h3", "", "Body"), body(k[BODY], -1));
  if (waits.length) {
    detail.append(el("h3", "", "Why its results go through memory"), long([["Value"], ["Read by"], ["Because"]], waits.map(([v, r, why]) => {
      const to = (facts.values[r] || [])[2];
      const reader = label(r);
      if (to !== null && to !== undefined) reader.append(" in ", chip("k" + to));
      return [label(v), reader, facts.reasons[why]];
    })));
  }
  if (k[VALUES].length) {
    detail.append(el("h3", "", "What it computes, and where that was written"), long([["Value"], ["", "soft"], ["Source"]],
      k[VALUES].map((v) => [label(v), ROLES[(facts.values[v] || [])[0]], sourceCell((facts.values[v] || [])[4])])));
  }
  detail.append(el("h3", "", "Buffers"), long([["Buffer"], ["Name"], ["Type"], ["Size", "n"]],
    [...k[READS].map((b) => [b, "reads "]), ...k[WRITES].map((b) => [b, "writes "])].map(([b, how]) => {
      const [name, type, size] = facts.buffers[b];
      return [el("span", "", how, chip("b" + b)), el("code", "", name), el("code", "", type), bytes(size)];
    })));
  detail.scrollTop = 0;
};
const sorts = { schedule: (i) => i, operations: (i) => -facts.kernels[i][FLOPS], bytes: (i) => -moved(facts.kernels[i]) };
const sortBy = (key) => {
  const words = query.split(/\s+/).filter(Boolean);
  const text = (i) => {
    const k = facts.kernels[i];
    return [`k${i}`, k[KIND], k[NAME], k[NOTE], ...k[VALUES].flatMap((v) => { const x = facts.values[v] || []; return ["%" + v, x[1], (facts.sources[x[4]] || [])[0]]; }),
      ...[...k[READS], ...k[WRITES]].flatMap((b) => ["b" + b, facts.buffers[b][0]])].join(" ").toLowerCase();
  };
  order = facts.kernels.map((_, i) => i).filter((i) => !words.length || words.every((w) => text(i).includes(w)));
  order.sort((a, b) => sorts[key](a) - sorts[key](b));
  kernelList.size(order.length);
};
let sorted = "schedule";
const heads = el("div", "heads");
[["schedule", "id", "k"], ["", "what", "Kernel"], ["operations", "n wide", "FLOP"], ["bytes", "n wide", "Traffic"]].forEach(([key, cls, label]) => {
  const h = key ? el("button", cls, label) : el("span", cls, label);
  if (key) {
    h.type = "button";
    h.title = `in the order of ${key}`;
    h.addEventListener("click", () => { sorted = key; sortBy(key); list.scrollTop = 0; });
  }
  heads.append(h);
});
list.before(heads);
list.addEventListener("click", (event) => {
  const row = event.target.closest("[data-kernel]");
  if (row) { location.hash = "k" + row.dataset.kernel; }
});
document.addEventListener("click", (event) => {
  const c = event.target.closest(".chip");
  if (!c) return;
  const name = c.dataset.v, n = +name.slice(1);
  if (name[0] === "k") location.hash = name;
  else if (name[0] === "%" && last >= 0) {
    history.pushState(null, "", "#passes");
    tab("passes");
    choose(last, last);
    mark(name, 0);
    codeList.reveal(pass(last).defs.get(n) ?? 0);
  } else if (name[0] === "b") { field.value = name; find(true); history.pushState(null, "", "#memory"); tab("memory"); }
});

// ---- Memory and state --------------------------------------------------------------------------------------------

const words = () => query.split(/\s+/).filter(Boolean);
const passes = (text) => words().every((w) => text.toLowerCase().includes(w));
const drawMemory = () => {
  const cells = facts.buffers.map((b, i) => [b, i]).filter(([b, i]) => passes(`b${i} ${b[0]} ${b[1]} ${b[3]}`));
  const later = new Map(facts.aliases);
  $("#memory .rows").replaceChildren(long([["Buffer"], ["Holds"], ["Type"], ["Size", "n"], ["Where"], ["Needed", "n"], ["Takes the place of"]], cells.map(([b, i]) => [
    chip("b" + i), el("code", "", b[0]), el("code", "", b[1]), bytes(b[2]),
    b[3] === "arena" ? "arena, " + num(b[4]) : b[3] === "state" ? "state" : b[3],
    b[3] === "constant" ? "" : `k${b[5]} to k${b[6]}`, later.has(i) ? chip("b" + later.get(i)) : "",
  ])));
};
const drawState = () => {
  const found = facts.states.filter((s) => passes(`${s.name} ${s.role} ${s.update} ${s.type}`));
  const first = (s) => s.update === "copied" ? 0 : 1, copied = found.some((s) => s.update === "copied");
  found.sort((a, b) => first(a) - first(b));
  const cells = found.map((s) => [el("code", "", s.name), s.role, el("code", "", s.type), bytes(s.bytes),
    el("span", s.update === "copied" ? "warn" : "", s.update === "kept" ? "not updated" : s.update),
    s.kernel === null ? "" : chip("k" + s.kernel), ...(copied ? [s.why] : [])]);
  $("#state .rows").replaceChildren(cells.length
    ? long([["State"], ["Role"], ["Type"], ["Size", "n"], ["Update"], ["By"], ...(copied ? [["Why it is copied", "soft"]] : [])], cells)
    : el("p", "nothing", "No state."));
};

// ---- Search and tabs ---------------------------------------------------------------------------------------------

const field = $("#find input"), output = $("#find output");
let hits = [], hit = -1, now = "passes";
const note = () => {
  hits = [];
  hit = -1;
  if (query && now === "passes" && facts.passes.length) {
    const [a, b] = [pass(left), pass(right)];
    const has = (p, at) => at >= 0 && fill(p.lines[at]).toLowerCase().includes(query);
    rows.forEach((r, i) => { if (has(a, r.l) || has(b, r.r)) hits.push(i); });
  }
  output.textContent = !query ? "" : now === "passes" ? num(hits.length) : now === "kernels" ? num(order.length) : "";
};
const step = (by) => {
  if (!hits.length) return;
  hit = (hit + by + hits.length) % hits.length;
  output.textContent = `${num(hit + 1)} of ${num(hits.length)}`;
  const at = hits[hit];
  let i = shown.findIndex((s) => s.at === at);
  if (i < 0) {
    const fold = shown.find((s) => s.fold && s.fold[0] <= at && at < s.fold[1]);
    if (fold) { unfolded.add(fold.fold[0]); folded(); }
    i = shown.findIndex((s) => s.at === at);
  }
  if (i >= 0) codeList.reveal(i);
};
const find = (still) => {
  query = field.value.trim().toLowerCase();
  sortBy(sorted);
  if (now === "memory" || still) drawMemory();
  if (now === "state") drawState();
  note();
  codeList.paint();
  if (now === "passes" && !still) step(1);
};
let timer = 0;
field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(find, 120); });
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); }
  if (event.key === "Escape") { field.value = ""; find(); field.blur(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== field) { event.preventDefault(); field.focus(); }
});
const tab = (name) => {
  now = name;
  for (const s of document.querySelectorAll(".tab")) s.hidden = s.id !== name;
  for (const b of document.querySelectorAll("[data-tab]")) b.classList.toggle("on", b.dataset.tab === name);
  hide();
  if (name === "memory") drawMemory();
  if (name === "state") drawState();
  codeList.paint();
  kernelList.paint();
  note();
};
for (const b of document.querySelectorAll("[data-tab]")) {
  b.addEventListener("click", () => { history.replaceState(null, "", "#" + b.dataset.tab); tab(b.dataset.tab); });
}
// #passes, #passes-fold (what a pass changed), #k7, #memory, #state.
const go = () => {
  const hash = decodeURIComponent(location.hash.slice(1)), k = /^k(\d+)$/.exec(hash);
  if (k) {
    tab("kernels");
    showKernel(+k[1]);
    const i = order.indexOf(+k[1]);
    if (i >= 0) kernelList.reveal(i);
    return;
  }
  const of = facts.passes.findIndex((p) => "passes-" + p.name === hash);
  if (of >= 0) choose(Math.max(0, of - 1), of);
  tab(["kernels", "memory", "state"].includes(hash) ? hash : "passes");
};
sortBy(sorted);
showKernel(0);
// First, the pass that changed most.
if (facts.passes.length) {
  const graphs = facts.passes.map((p, i) => [p, i]).filter(([p, i]) => p.graph && !p.same && i > 0);
  const size = (i) => Math.abs(pass(i).lines.length - pass(Math.max(0, i - 1)).lines.length);
  const most = graphs.reduce((best, [, i]) => best < 0 || size(i) > size(best) ? i : best, -1);
  choose(Math.max(0, most - 1), Math.max(0, most));
}
addEventListener("hashchange", go);
addEventListener("popstate", go);
go();
