// The first part of the viewer's script: the facts, the packed texts of the passes, and the alignment of two of them. The
// page wraps it and viewer.js in one strict function.
const facts = JSON.parse(document.getElementById("facts").textContent);
const [KIND, NAME, NOTE, FLOPS, READ, WRITTEN, READS, WRITES, VALUES, BODY, LAUNCHES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const OPEN = "\u0001", ROW = 19, CONTEXT = 3, LEAST = 8;
const $ = (selector, root) => (root || document).querySelector(selector);
const el = (tag, cls, ...inside) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  e.append(...inside);
  return e;
};
const num = (n) => n.toLocaleString("en");
const scaled = (x, base, units) => {
  let i = 0;
  while (x >= base && i + 1 < units.length) { x /= base; i += 1; }
  return (i === 0 || x >= 100 ? Math.round(x) : x.toPrecision(3)) + units[i];
};
const bytes = (n) => scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
const si = (n) => scaled(n, 1000, [" ", " k", " M", " G", " T", " P"]);

// ---- Texts -------------------------------------------------------------------------------------------------------

const base36 = (t) => parseInt(t, 36);
// Lines as { form, nums }; the text of one is made when it is drawn.
const unpack = (packed) => packed.split(";").map((line) => {
  const colon = line.indexOf(":");
  if (colon < 0) return { form: base36(line), nums: [] };
  return { form: base36(line.slice(0, colon)), nums: line.slice(colon + 1).split(",").map(base36) };
});
const fill = (line) => {
  let i = 0;
  return facts.forms[line.form].split(OPEN).reduce((text, part) => text + line.nums[i++] + part);
};
const runs = (packed) => packed === "" ? [] : packed.split(",").flatMap((run) => {
  const [value, times] = run.split("*").map(base36);
  return new Array(times || 1).fill(value);
});
const loaded = new Map();
// The lines of pass `i`, with its values: for each number the defining line, and the lines that use it.
const pass = (i) => {
  while (facts.passes[i].same) i -= 1;
  if (loaded.has(i)) return loaded.get(i);
  const p = facts.passes[i], lines = unpack(p.text);
  const sources = runs(p.lines || "");
  lines.forEach((line, at) => { line.source = sources[at] || 0; });
  const defs = new Map(), uses = new Map();
  if (p.graph) {
    lines.forEach((line, at) => line.nums.forEach((n) => {
      if (!defs.has(n)) defs.set(n, at);
      else if (uses.has(n)) uses.get(n).push(at);
      else uses.set(n, [at]);
    }));
  }
  const it = { lines, defs, uses, graph: p.graph };
  loaded.set(i, it);
  return it;
};
// The last graph, whose values have kernels and buffers.
const last = facts.passes.reduce((found, p, i) => p.graph ? i : found, -1);
const isLast = (i) => {
  const root = (j) => { while (facts.passes[j].same) j -= 1; return j; };
  return last >= 0 && root(i) === root(last);
};

// ---- Alignment of two texts --------------------------------------------------------------------------------------

// The longest common subsequence of a[a0..a1) and b[b0..b1) by Myers' method; `pairs` gets the indices. Parts that
// differ too much are left unpaired.
const myers = (a, b, a0, a1, b0, b1, pairs) => {
  const n = a1 - a0, m = b1 - b0, most = Math.min(n + m, 1500), trace = [];
  if (!n || !m) return;
  const v = new Int32Array(2 * most + 3);
  let found = -1;
  for (let d = 0; d <= most && found < 0; d++) {
    trace.push(v.slice(most - d, most + d + 3));
    for (let k = -d; k <= d; k += 2) {
      const at = most + 1 + k;
      let x = k === -d || (k !== d && v[at - 1] < v[at + 1]) ? v[at + 1] : v[at - 1] + 1;
      while (x < n && x - k < m && a[a0 + x] === b[b0 + x - k]) x += 1;
      v[at] = x;
      if (x >= n && x - k >= m) { found = d; break; }
    }
  }
  if (found < 0) return;
  let x = n, y = m;
  for (let d = found; d >= 0; d--) {
    const before = (k) => trace[d][k + d + 1], k = x - y;
    const from = k === -d || (k !== d && before(k - 1) < before(k + 1)) ? k + 1 : k - 1;
    const x0 = before(from), y0 = x0 - from;
    while (x > x0 && y > y0) { x -= 1; y -= 1; pairs.push([a0 + x, b0 + y]); }
    [x, y] = [x0, y0];
  }
};
// Lines that are there once in both anchor the rest.
const align = (a, b) => {
  const pairs = [];
  let a0 = 0, b0 = 0, a1 = a.length, b1 = b.length;
  while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) pairs.push([a0++, b0++]);
  while (a1 > a0 && b1 > b0 && a[a1 - 1] === b[b1 - 1]) pairs.push([--a1, --b1]);
  const once = (keys, from, to) => {
    const at = new Map();
    for (let i = from; i < to; i++) at.set(keys[i], at.has(keys[i]) ? -1 : i);
    return at;
  };
  const inA = once(a, a0, a1), inB = once(b, b0, b1), both = [];
  for (const [key, i] of inA) if (i >= 0 && inB.get(key) >= 0) both.push([i, inB.get(key)]);
  both.sort((p, q) => p[0] - q[0]);
  // The longest rising run of the second index, by patience.
  const tops = [], before = new Array(both.length).fill(-1);
  both.forEach((pair, i) => {
    let low = 0, high = tops.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (both[tops[middle]][1] < pair[1]) low = middle + 1; else high = middle;
    }
    if (low) before[i] = tops[low - 1];
    tops[low] = i;
  });
  const anchors = [];
  for (let i = tops.length ? tops[tops.length - 1] : -1; i >= 0; i = before[i]) anchors.push(both[i]);
  anchors.reverse().push([a1, b1]);
  for (const [i, j] of anchors) {
    // Grow from the sides first: layers repeat.
    while (a0 < i && b0 < j && a[a0] === b[b0]) pairs.push([a0++, b0++]);
    let x = i, y = j;
    while (x > a0 && y > b0 && a[x - 1] === b[y - 1]) pairs.push([--x, --y]);
    myers(a, b, a0, x, b0, y, pairs);
    if (i < a1 || j < b1) pairs.push([i, j]);
    [a0, b0] = [i + 1, j + 1];
  }
  return pairs.sort((p, q) => p[0] - q[0]);
};

const sort = (p) => p.lines.length ? facts.forms[p.lines[0].form].split(" ")[0] : "";
const alike = (a, b) => sort(a) === sort(b);

// Rows of two passes: { kind, l, r } with the lines' numbers, or -1. A pair whose values correspond is "same"; one that
// is alike but reads other values is "moved".
const rowsOf = (i, j) => {
  const a = pass(i), b = pass(j);
  if (a === b) return a.lines.map((_, at) => ({ kind: "same", l: at, r: at }));
  // A graph, a schedule and a plan are different texts: they only stand beside each other.
  if (!alike(a, b)) {
    const n = Math.max(a.lines.length, b.lines.length);
    return Array.from({ length: n }, (_, at) => ({ kind: "same", l: at < a.lines.length ? at : -1, r: at < b.lines.length ? at : -1 }));
  }
  const key = (line) => line.form * 65536 + line.source;
  const pairs = align(a.lines.map(key), b.lines.map(key));
  const rows = [], map = new Map();
  let l = 0, r = 0;
  rows.map = map;
  const gap = (l1, r1) => {
    while (l < l1 || r < r1) {
      const [x, y] = [l < l1 ? l++ : -1, r < r1 ? r++ : -1];
      rows.push({ kind: x < 0 ? "add" : y < 0 ? "del" : "edit", l: x, r: y });
    }
  };
  for (const [x, y] of pairs) {
    gap(x, y);
    const form = facts.forms[a.lines[x].form];
    let same = true, at = -1;
    a.lines[x].nums.forEach((n, k) => {
      at = form.indexOf(OPEN, at + 1);
      const prefix = form[at - 1], m = b.lines[y].nums[k];
      if (prefix !== "%" && prefix !== "b") return;
      const name = prefix + n, defines = a.graph ? a.defs.get(n) === x : !map.has(name);
      if (defines) map.set(name, m);
      else if (map.get(name) !== m) same = false;
    });
    rows.push({ kind: same ? "same" : "moved", l: x, r: y });
    [l, r] = [x + 1, y + 1];
  }
  gap(a.lines.length, b.lines.length);
  return rows;
};
