"use strict";
// Displays the data of a run. Text from the journal becomes text nodes, never markup.

// Data: arrays come as base64 of little-endian numbers.

const VIEWS = { f8: Float64Array, i4: Int32Array, u1: Uint8Array };

function unpacked(key, value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const kind = Object.keys(value)[0];
  if (!(kind in VIEWS) || typeof value[kind] !== "string") return value;
  const raw = atob(value[kind]);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new VIEWS[kind](bytes.buffer);
}

function joined(a, b) {
  const both = new a.constructor(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

const FAILED = 5, STOPPED = 6;  // fates of rows, as in page_data.py

// Numbers and durations as text.

const $ = (id) => document.getElementById(id);
const whole = (n) => n.toLocaleString("en-US");

function exact(v) {
  if (Number.isNaN(v)) return "";
  if (!Number.isFinite(v)) return v > 0 ? "inf" : "-inf";
  return v !== 0 && Math.abs(v) < 1e-4 ? v.toExponential() : String(v);  // all digits, few zeros
}

function short(v) {
  return Number.isFinite(v) ? exact(Number(v.toPrecision(6))) : exact(v) || "none";
}

function withError(mean, error) {  // two digits of the error, and as many decimals of the mean
  if (!Number.isFinite(error)) return short(mean);
  const decimals = error > 0 ? 1 - Math.floor(Math.log10(error)) : 6;
  return decimals >= 0 && decimals <= 6 ? `${mean.toFixed(decimals)} ± ${error.toFixed(decimals)}` : `${short(mean)} ± ${Number(error.toPrecision(2))}`;
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 100) return `${Number(seconds.toPrecision(3))} s`;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.round(seconds);
  const words = [];
  for (const [unit, length] of parts) {
    if (rest >= length && words.length < 2) words.push(`${Math.floor(rest / length)} ${unit}`);
    rest %= length;
  }
  return words.join(" ");
}

function node(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made[name] = value;
  made.append(...children);
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// The tooltip: a title, and pairs of a name and a value.

const tip = $("tip");

function showTip(event, title, pairs) {
  tip.replaceChildren(node("b", {}, title), ...pairs.map(([name, value]) => node("div", {}, node("span", {}, name), node("span", {}, value))));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 16 + width < innerWidth ? event.clientX + 16 : event.clientX - width - 12;
  const top = Math.min(event.clientY + 14, innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(left, 4)}px, ${top}px)`;
}

function hideTip() {
  tip.hidden = true;
}

function tipOn(element, title, pairs) {
  element.addEventListener("pointermove", (event) => showTip(event, title, pairs));
  element.addEventListener("pointerleave", hideTip);
}

// Charts.

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || rough;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 50; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function lastAtOrBefore(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function nearest(xs, x) {
  const i = lastAtOrBefore(xs, x);
  return i < 0 ? 0 : i + 1 < xs.length && xs[i + 1] - x < x - xs[i] ? i + 1 : i;
}

function path(xs, ys, at, step) {
  let d = "", pen = false;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) { pen = false; continue; }
    const [x, y] = at(xs[i], ys[i]);
    d += pen ? (step ? `H${x}V${y}` : `L${x} ${y}`) : `M${x} ${y}`;
    pen = true;
  }
  return d;
}

class Chart {
  // A chart in `host`, redrawn when its size or its content changes.
  // content: {x: [low, high], y: [low, high], layers: (at, room) => elements, look: (x) => {x, title, pairs, marks}}
  constructor(host) {
    this.host = host;
    this.svg = drawn("svg", { role: "img" });
    this.cross = drawn("g");
    host.append(this.svg);
    new ResizeObserver(() => this.draw()).observe(host);
    host.addEventListener("pointermove", (event) => this.hover(event));
    host.addEventListener("pointerleave", () => { this.cross.replaceChildren(); hideTip(); });
  }

  show(content) {
    this.content = content;
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (!this.content || !width) return;
    const { x, y, layers } = this.content;
    const yTicks = ticks(y[0], y[1], Math.max(2, height / 55));
    const words = yTicks.map((v) => short(v));
    const left = 12 + 6.4 * Math.max(...words.map((w) => w.length), 2);
    const room = { left, right: width - 8, top: 8, bottom: height - 22 };
    const sx = (room.right - room.left) / (x[1] - x[0] || 1), sy = (room.bottom - room.top) / (y[1] - y[0] || 1);
    this.at = (a, b) => [Math.round((room.left + (a - x[0]) * sx) * 100) / 100, Math.round((room.bottom - (b - y[0]) * sy) * 100) / 100];
    this.room = room;
    this.back = (px) => x[0] + (px - room.left) / sx;
    const axis = drawn("g");
    yTicks.forEach((v, i) => {
      const py = this.at(x[0], v)[1];
      axis.append(drawn("path", { class: "grid", d: `M${room.left} ${py}H${room.right}` }));
      axis.append(drawn("text", { x: room.left - 7, y: py + 4, "text-anchor": "end" }, words[i]));
    });
    for (const v of ticks(x[0], x[1], Math.max(2, width / 85))) {
      if (!this.content.real && v !== Math.round(v)) continue;
      axis.append(drawn("text", { x: this.at(v, 0)[0], y: height - 5, "text-anchor": "middle" }, this.content.real ? short(v) : whole(v)));
    }
    const clip = `clip-${this.host.id}`;
    const frame = drawn("clipPath", { id: clip }, drawn("rect", { x: room.left, y: room.top - 2, width: Math.max(room.right - room.left + 2, 0), height: room.bottom - room.top + 4 }));
    this.cross.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(frame, axis, drawn("g", { "clip-path": `url(#${clip})` }, ...layers(this.at, room)), this.cross);
  }

  hover(event) {
    if (!this.content || !this.room) return;
    const box = this.host.getBoundingClientRect();
    const seen = this.content.look(this.back(event.clientX - box.left));
    if (!seen) return;
    const [px] = this.at(seen.x, 0);
    this.cross.replaceChildren(drawn("path", { class: "cross", d: `M${px} ${this.room.top}V${this.room.bottom}` }));
    for (const value of seen.marks) {
      const [, py] = this.at(seen.x, value);
      if (py >= this.room.top - 2 && py <= this.room.bottom + 2) this.cross.append(drawn("circle", { class: "mark", cx: px, cy: py, r: 4 }));
    }
    showTip(event, seen.title, seen.pairs);
  }
}

function valuesContent(run) {
  const [calls, best] = run.improvements, [dotX, dotY] = run.dots, [bandX, low, middle, high] = run.bands;
  return {
    x: [0, Math.max(run.calls, 1)],
    y: run.extent,
    layers: (at, room) => {
      let dots = "", upper = "", lower = "";
      for (let i = 0; i < dotX.length; i++) if (Number.isFinite(dotY[i])) dots += `M${at(dotX[i], dotY[i]).join(" ")}h0`;
      for (let i = 0; i < bandX.length; i++) {
        if (!Number.isFinite(low[i])) continue;
        upper += `${upper ? "L" : "M"}${at(bandX[i], high[i]).join(" ")}`;
        lower = `L${at(bandX[i], low[i]).join(" ")}${lower}`;
      }
      return [
        drawn("path", { class: "dots", d: dots }),
        drawn("path", { class: "band", d: upper && `${upper}${lower}Z` }),
        drawn("path", { class: "median", d: path(bandX, middle, at, false) }),
        drawn("path", { class: "best", d: path(calls, best, at, true) }),
        ...(run.recommended ? [drawn("path", { class: "recommended", d: `M${room.left} ${at(0, run.recommended[0])[1]}H${room.right}` })] : []),
      ];
    },
    look: (x) => {
      const call = Math.min(Math.max(Math.round(x), 1), run.calls);
      const row = table.rowOfCall[call];
      if (row === undefined) return null;
      const value = table.column("value").data[row], i = lastAtOrBefore(calls, call), b = nearest(bandX, call);
      const fate = table.column("fate").data[row];
      const pairs = [["value", exact(value) || (fate === STOPPED ? "stopped" : "failed")]];
      if (i >= 0) pairs.push([run.recommended ? "best observed so far" : "best so far", exact(best[i])]);
      if (bandX.length) pairs.push(["median around", exact(middle[b])], ["quartiles", `${short(low[b])} to ${short(high[b])}`]);
      return { x: call, title: `evaluation ${whole(call)}`, pairs, marks: i >= 0 ? [value, best[i]] : [value] };
    },
  };
}

function range(values) {  // with some room
  let low = Infinity, high = -Infinity;
  for (const v of values) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (low > high) return [0, 1];
  const room = 0.05 * (high - low) || 0.05 * Math.abs(low) || 1;
  return [low - room, high + room];
}

function objective(run, values, i) {  // the values of one objective
  const m = run.objectives.directions.length;
  return Array.from({ length: values.length / m }, (_, row) => values[row * m + i]);
}

function frontContent(run) {  // of the first two objectives
  const { front, dots, directions, rows, knee } = run.objectives;
  const [xs, ys] = [0, 1].map((i) => objective(run, front, i)), [dotX, dotY] = [0, 1].map((i) => objective(run, dots, i));
  const at = Array.from(rows).indexOf(knee);
  return {
    real: true,
    x: range(dotX.concat(xs)),
    y: range(dotY.concat(ys)),
    layers: (place) => [
      drawn("path", { class: "dots", d: dotX.map((x, i) => `M${place(x, dotY[i]).join(" ")}h0`).join("") }),
      ...(directions.length === 2 ? [drawn("path", { class: "best", d: path(xs, ys, place, true) })] : []),
      ...xs.map((x, i) => { const [cx, cy] = place(x, ys[i]); return drawn("circle", { class: "mark", cx, cy, r: i === at ? 6 : 3 }); }),
    ],
    look: (x) => {
      if (!xs.length) return null;
      let i = 0;
      xs.forEach((v, j) => { if (Math.abs(v - x) < Math.abs(xs[i] - x)) i = j; });
      const pairs = directions.map(([name], j) => [name, exact(front[i * directions.length + j])]);
      return { x: xs[i], title: i === at ? "knee of the front" : "point of the front", pairs, marks: [ys[i]] };
    },
  };
}

function hypervolumeContent(run) {
  const [xs, ys] = run.objectives.hypervolume;
  return {
    x: [0, Math.max(run.rows, 1)],
    y: [0, 1.05],
    layers: (at) => [drawn("path", { class: "best", d: path(xs, ys, at, true) })],
    look: (x) => {
      const i = lastAtOrBefore(xs, x);
      return i < 0 ? null : { x: xs[i], title: `evaluation ${whole(xs[i])}`, pairs: [["hypervolume", short(ys[i])]], marks: [ys[i]] };
    },
  };
}

function curvesContent(run) {  // values over steps; those that were stopped end with a dot
  const { values, lengths, stopped, rows } = run.curves, calls = table.column("evaluation").data;
  const curves = [];
  let start = 0, longest = 1;
  lengths.forEach((length, i) => {
    curves.push({ row: rows[i], stopped: stopped[i] === 1, ys: values.subarray(start, start + length) });
    start += length;
    longest = Math.max(longest, length);
  });
  const sorted = Float64Array.from(values).filter(Number.isFinite).sort(), turn = run.direction === "maximize";
  const at = (p) => sorted[Math.round(p * (sorted.length - 1))];  // the worst 5% may lie outside
  const ends = sorted.length ? (turn ? [at(0.05), at(1)] : [at(0), at(0.95)]) : [];
  const steps = (ys) => Array.from(ys, (_, i) => i + 1);
  return {
    x: [1, Math.max(longest, 2)],
    y: range(ends),
    layers: (place) => {
      const all = { complete: "", stopped: "", best: "", ends: "" };
      for (const { row, stopped: early, ys } of curves) {
        const d = path(steps(ys), ys, place, false), last = ys.length - 1;
        all[early ? "stopped" : row === run.bestRow ? "best" : "complete"] += d;
        if (early && Number.isFinite(ys[last])) all.ends += `M${place(last + 1, ys[last]).join(" ")}h0`;
      }
      return ["stopped", "complete", "ends", "best"].map((kind) => drawn("path", { class: kind === "best" ? "best" : `curve ${kind}`, d: all[kind] }));
    },
    look: (x) => {
      const step = Math.min(Math.max(Math.round(x), 1), longest);
      const there = curves.filter(({ ys }) => ys.length >= step);
      const best = curves.find(({ row }) => row === run.bestRow);
      const pairs = [["evaluations shown", whole(there.length)], ["stopped after this step", whole(there.filter(({ stopped: early, ys }) => early && ys.length === step).length)]];
      if (best && best.ys.length >= step) pairs.push([`evaluation ${whole(calls[best.row])}, the best`, exact(best.ys[step - 1])]);
      return { x: step, title: `step ${whole(step)}`, pairs, marks: best && best.ys.length >= step ? [best.ys[step - 1]] : [] };
    },
  };
}

function drawCurves(run) {
  $("curves-card").hidden = !run.curves;
  if (run.curves) charts.curves.show(curvesContent(run));
}

function drawObjectives(run) {
  $("objectives").hidden = !run.objectives;
  if (!run.objectives) return;
  const { directions, front, errors, rows, count, knee } = run.objectives, m = directions.length;
  const [first, second] = directions;
  $("values-title").textContent = `Values of ${first[0]} over evaluations`;
  $("front-of").textContent = `${second[0]} (${second[1]}) over ${first[0]} (${first[1]}); the larger dot is the knee`;
  $("front-count").textContent = count > rows.length ? `${rows.length} of ${whole(count)}` : whole(count);
  charts.front.show(frontContent(run));
  charts.hypervolume.show(hypervolumeContent(run));
  const variables = table.columns.filter((column) => column.variable).slice(0, FRONT_VARIABLES);
  const head = node("tr", {}, node("th", {}, "row"), ...directions.map(([name, direction]) => node("th", {}, `${name} (${direction})`)), ...variables.map((column) => node("th", {}, column.name)));
  const lines = Array.from(rows, (row, i) => node("tr", { className: row === knee ? "best" : "" }, node("td", {}, whole(row + 1)), ...directions.map((_, j) => node("td", { title: exact(front[i * m + j]) }, errors ? withError(front[i * m + j], errors[i * m + j]) : short(front[i * m + j]))), ...variables.map((column) => cell(column, row))));
  $("front-table").replaceChildren(node("thead", {}, head), node("tbody", {}, ...lines));
}

function stepContent(run, name, label, rule) {
  const xs = run.steps.iteration, ys = run.steps[name];
  let most = rule || 0;
  for (const v of ys) if (v > most && Number.isFinite(v)) most = v;
  return {
    x: [0, Math.max(run.nit, 1)],
    y: [0, most * 1.08 || 1],
    layers: (at, room) => [
      ...(rule ? [drawn("path", { class: "rule", d: `M${room.left} ${at(0, rule)[1]}H${room.right}` })] : []),
      drawn("path", { class: "line", d: path(xs, ys, at, false) }),
    ],
    look: (x) => {
      if (!xs.length) return null;
      const i = nearest(xs, x);
      const pairs = [[label, exact(ys[i]) || "none"], ["evaluations", whole(run.steps.nfev[i])]];
      if (rule) pairs.push(["kept near α", exact(rule)]);
      return { x: xs[i], title: `iteration ${whole(xs[i])}`, pairs, marks: [ys[i]] };
    },
  };
}

function colors() {
  const style = getComputedStyle(document.documentElement);
  return [0, 1, 2, 3].map((i) => style.getPropertyValue(`--shade-${i}`).trim().match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16)));
}

class HeatMap {
  // Rows of θ from top to bottom, iterations from left to right; each column extends to the next iteration that is kept.
  constructor(host) {
    this.host = host;
    this.canvas = node("canvas");
    this.svg = drawn("svg", { role: "img" });
    host.append(this.canvas, this.svg);
    new ResizeObserver(() => this.draw()).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    host.addEventListener("pointermove", (event) => this.hover(event));
    host.addEventListener("pointerleave", hideTip);
  }

  show(run, shades = run.theta_history, what = "θ") {
    Object.assign(this, { run, shades, what });
    const rows = shades.names.length;
    this.host.style.height = `${Math.min(Math.max(rows * 18, 60), 520) + 24}px`;
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (!this.run || !width) return;
    const { names, p } = this.shades;
    const longest = Math.min(Math.max(...names.map((n) => n.length), 1), width < 500 ? 14 : 24);
    const left = 12 + 6.3 * longest, rows = names.length, bottom = height - 22;
    const wide = Math.max(Math.floor(width - left - 8), 1);
    this.room = { left, wide, bottom, last: Math.max(this.run.nit, 1) };
    const image = new ImageData(wide, Math.max(rows, 1)), shades = colors();
    for (let px = 0; px < wide; px++) {
      const column = this.column(px);
      for (let row = 0; row < rows; row++) {
        const place = Math.min(Math.max(p[column * rows + row], 0), 1) * 3, base = Math.min(Math.floor(place), 2), part = place - base;
        const where = (row * wide + px) * 4;
        for (let c = 0; c < 3; c++) image.data[where + c] = shades[base][c] + part * (shades[base + 1][c] - shades[base][c]);
        image.data[where + 3] = 255;
      }
    }
    const small = node("canvas", { width: wide, height: Math.max(rows, 1) });
    small.getContext("2d").putImageData(image, 0, 0);
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.scale(ratio, ratio);
    context.drawImage(small, left, 0, wide, bottom);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const labels = drawn("g", { class: "names" }), every = Math.ceil((rows * 13) / bottom);
    for (let row = 0; row < rows; row += every) {
      const text = names[row].length > longest ? `${names[row].slice(0, longest - 1)}…` : names[row];
      labels.append(drawn("text", { x: left - 7, y: ((row + 0.5) * bottom) / rows + 4, "text-anchor": "end" }, text));
    }
    const axis = ticks(0, this.room.last, Math.max(2, wide / 85)).filter((v) => v === Math.round(v));
    this.svg.replaceChildren(labels, ...axis.map((v) => drawn("text", { x: left + (v / this.room.last) * wide, y: height - 5, "text-anchor": "middle" }, whole(v))));
  }

  column(px) {
    return Math.max(lastAtOrBefore(this.shades.iterations, ((px + 0.5) / this.room.wide) * this.room.last), 0);
  }

  hover(event) {
    if (!this.room) return;
    const box = this.host.getBoundingClientRect(), { names, iterations, p } = this.shades;
    const px = event.clientX - box.left - this.room.left, row = Math.floor(((event.clientY - box.top) / this.room.bottom) * names.length);
    if (px < 0 || px >= this.room.wide || row < 0 || row >= names.length) return hideTip();
    const column = this.column(px);
    showTip(event, names[row], [["iteration", whole(iterations[column])], [this.what, exact(p[column * names.length + row])]]);
  }
}

// Importance, slices and parallel coordinates, from the rows of the table.

const SLICES = 12, AXES = 10, DOTS = 1500, LINES = 400;
const FRONT_VARIABLES = 8;  // columns of the table of the front

function cellOf(entry) {  // a function from a row to the number in it: the index of an option, NaN if inactive
  const { data, per, labels, bits } = table.columns.filter((column) => column.variable)[entry.place], k = entry.entry;
  if (bits) return (i) => (data[i * per + (k >> 3)] >> (7 - (k & 7))) & 1;
  if (!labels) return (i) => data[i * per + k];
  return (i) => (data[i * per + k] > entry.range[1] ? NaN : data[i * per + k]);
}

function labelsOf(entry) {
  const { labels, bits } = table.columns.filter((column) => column.variable)[entry.place];
  return bits ? ["0", "1"] : labels ? labels.slice(0, entry.range[1] + 1) : null;
}

function positionOf(entry, v) {  // in the range, from 0 to 1
  const [low, high] = entry.range;
  return entry.log ? Math.log(v / low) / (Math.log(high / low) || 1) : (v - low) / (high - low || 1);
}

function rowsWithValue(most) {  // evenly chosen rows of the table that have a finite value, in their order
  const values = table.column("value").data, found = [];
  for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) found.push(i);
  if (found.length <= most) return found;
  return Array.from({ length: most }, (_, i) => found[Math.floor((i * (found.length - 1)) / (most - 1))]);
}

function drawImportance(run) {
  const { method, entries, count } = run.importance, most = entries.length ? entries[0].score : 0;
  const more = entries.length < count ? ` The first ${whole(entries.length)} of ${whole(count)} are shown.` : "";
  $("importance-hint").textContent = most ? `${method[0].toUpperCase()}${method.slice(1)}, among the evaluated points; the scores sum to 1.${more}` : "No variable explains the values yet.";
  $("importance").replaceChildren(...(most ? entries : []).flatMap((entry) => {
    const bar = node("div", { className: "bar-of" });
    bar.style.width = `${(100 * entry.score) / most}%`;
    return [node("span", { className: "name", title: entry.name }, entry.name), bar, node("span", { className: "score" }, entry.score.toFixed(2))];
  }));
}

function drawSlices(run) {
  const entries = run.importance.entries.filter((entry) => entry.place >= 0).slice(0, SLICES), rows = rowsWithValue(DOTS);
  $("slices-card").hidden = !entries.length || !rows.length;
  const values = table.column("value").data, [low, high] = run.extent, width = 270, height = 165, left = 46, bottom = height - 18;
  const up = (v) => bottom - ((v - low) / (high - low || 1)) * (bottom - 6);
  const cards = entries.map((entry) => {
    const cell = cellOf(entry), labels = labelsOf(entry), n = labels ? labels.length : 1, inner = width - left - 14;
    const across = (v, i) => left + 6 + inner * (labels ? (v + 0.5 + 0.6 * (((i * 0.618034) % 1) - 0.5)) / n : positionOf(entry, v));
    const paths = ["", "", ""];
    rows.forEach((row, i) => {
      const v = cell(row), y = up(values[row]);
      if (Number.isNaN(v) || y < 2 || y > bottom + 2) return;
      paths[Math.min(Math.floor((3 * i) / rows.length), 2)] += `M${across(v, i).toFixed(1)} ${y.toFixed(1)}h0`;
    });
    const marks = labels ? labels.map((label, i) => [left + 6 + (inner * (i + 0.5)) / n, label, "middle"]) : [[left + 6, short(entry.range[0]), "start"], [width - 8, short(entry.range[1]), "end"]];
    const every = Math.ceil(marks.length / 6), fits = labels ? Math.max(Math.floor(inner / Math.min(n, 6) / 6), 3) : 20;
    const texts = marks.filter((_, i) => i % every === 0).map(([x, text, anchor]) => drawn("text", { x, y: height - 4, "text-anchor": anchor }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text));
    const axis = ticks(low, high, 3).flatMap((v) => [drawn("path", { class: "grid", d: `M${left} ${up(v)}H${width}` }), drawn("text", { x: left - 5, y: up(v) + 3, "text-anchor": "end" }, short(v))]);
    const svg = drawn("svg", { role: "img", viewBox: `0 0 ${width} ${height}` }, ...axis, ...texts, ...paths.map((d, i) => drawn("path", { class: `dot dot-${i}`, d })));
    return node("div", {}, node("h3", { title: entry.name }, entry.log ? `${entry.name} (log)` : entry.name), svg);
  });
  $("slices").replaceChildren(...cards);
}

function drawParallel(run) {
  const entries = run.importance.entries.filter((entry) => entry.place >= 0).slice(0, AXES).sort((a, b) => a.order - b.order);
  const values = table.column("value").data, turn = run.direction === "maximize" ? -1 : 1;
  const rows = rowsWithValue(LINES).sort((a, b) => turn * (values[b] - values[a]) || b - a);  // the best last, and on top
  $("parallel-card").hidden = entries.length < 2 || rows.length < 2;
  const gap = 108, left = 30, top = 26, bottom = 262, width = left + gap * entries.length + 72;
  const x = (k) => left + gap * k, y = (p) => bottom - p * (bottom - top);
  const cells = entries.map(cellOf), paths = ["", "", "", ""];
  let good = 0;
  rows.forEach((row, i) => {
    if (i && values[row] !== values[rows[i - 1]]) good = i / (rows.length - 1);  // equal values, equal ranks
    let d = "", pen = false;
    entries.forEach((entry, k) => {
      const v = cells[k](row);
      if (Number.isNaN(v)) { pen = false; return; }
      d += `${pen ? "L" : "M"}${x(k)} ${y(positionOf(entry, v)).toFixed(1)}`;
      pen = true;
    });
    d += `${pen ? "L" : "M"}${x(entries.length)} ${y(good).toFixed(1)}`;
    paths[good > 0.95 ? 3 : good > 0.75 ? 2 : good > 0.4 ? 1 : 0] += d;
  });
  const axes = [];
  const tick = (k, p, text) => axes.push(drawn("text", { class: "tick", x: x(k) + 4, y: y(p) + 4 }, text.length > 14 ? `${text.slice(0, 13)}…` : text));
  const title = (k, text) => axes.push(drawn("text", { class: "title", x: x(k), y: 12, "text-anchor": k ? "middle" : "start" }, text.length > 16 ? `${text.slice(0, 15)}…` : text));
  entries.forEach((entry, k) => {
    const labels = labelsOf(entry);
    axes.push(drawn("path", { class: "axis", d: `M${x(k)} ${top}V${bottom}` }));
    title(k, entry.name);
    if (labels) labels.forEach((label, i) => { if (i % Math.ceil(labels.length / 8) === 0) tick(k, i / (labels.length - 1 || 1), label); });
    else [0, 1].forEach((p) => tick(k, p, short(entry.range[p])));
  });
  axes.push(drawn("path", { class: "axis", d: `M${x(entries.length)} ${top}V${bottom}` }));
  title(entries.length, "value");
  if (rows.length) [0, 1].forEach((p) => tick(entries.length, p, short(values[rows[p ? rows.length - 1 : 0]])));
  const svg = drawn("svg", { role: "img", viewBox: `0 0 ${width} 272` }, ...paths.map((d, i) => drawn("path", { class: `row row-${i}`, d })), ...axes);
  svg.style.minWidth = `${0.8 * width}px`;
  svg.style.maxWidth = `${1.3 * width}px`;
  $("parallel").replaceChildren(svg);
}

// Tables.

class Table {
  // The table of evaluations: one page at a time, sorted by any column.
  constructor() {
    this.size = 50;
    this.page = 0;
    this.sorted = { name: "evaluation", down: false };
    this.rowOfCall = [];
    const turn = (id, to) => $(id).addEventListener("click", () => { this.page = to(); this.draw(); });
    turn("first", () => 0);
    turn("previous", () => this.page - 1);
    turn("next", () => this.page + 1);
    turn("last", () => this.pages - 1);
    $("failed-only").addEventListener("change", () => { this.page = 0; this.arrange(); });
  }

  column(name) {
    return this.columns.find((column) => column.name === name && !column.variable);
  }

  take(run) {
    if (run.since && this.columns) {
      run.columns.forEach((fresh, i) => { this.columns[i] = { ...fresh, data: joined(this.columns[i].data, fresh.data) }; });
    } else {
      this.columns = run.columns;
    }
    this.rows = run.rows;
    const calls = this.column("evaluation").data;
    if (!run.since) this.rowOfCall = [];
    for (let i = run.since; i < calls.length; i++) if (calls[i]) this.rowOfCall[calls[i]] = i;
    this.best = run.bestRow;
    this.arrange();
  }

  arrange() {
    const fates = this.column("fate").data, only = $("failed-only").checked;
    let count = 0;
    const order = new Uint32Array(this.rows);
    for (let i = 0; i < this.rows; i++) if (!only || fates[i] === FAILED) order[count++] = i;
    this.order = order.subarray(0, count);
    const { name, variable, down } = this.sorted, turn = down ? -1 : 1;
    const column = this.columns.find((c) => c.name === name && Boolean(c.variable) === Boolean(variable)) || this.columns[0];
    if (column === this.columns[0]) {  // chronological order
      if (down) this.order.reverse();
    } else {
      const { data, per } = column, rank = ranks(column);
      const key = (i) => (rank ? rank[data[i]] : data[i]);
      this.order.sort((a, b) => {
        for (let k = 0; k < per; k++) {
          const u = key(a * per + k), v = key(b * per + k);
          if (u === v) continue;
          if (Number.isNaN(u) || Number.isNaN(v)) {  // missing values come last
            if (Number.isNaN(u) && Number.isNaN(v)) continue;
            return Number.isNaN(u) ? 1 : -1;
          }
          return u < v ? -turn : turn;
        }
        return a - b;
      });
    }
    this.draw();
  }

  get pages() {
    return Math.max(Math.ceil(this.order.length / this.size), 1);
  }

  draw() {
    this.page = Math.min(Math.max(this.page, 0), this.pages - 1);
    const shown = this.columns.filter((column) => this.worth(column));
    $("evaluations").tHead.replaceChildren(node("tr", {}, ...shown.map((column) => this.head(column))));
    const rows = [];
    for (const i of this.order.subarray(this.page * this.size, (this.page + 1) * this.size)) {
      const row = node("tr", {}, ...shown.map((column) => cell(column, i)));
      row.classList.toggle("failed", this.column("fate").data[i] === FAILED);
      row.classList.toggle("is-best", i === this.best);
      rows.push(row);
    }
    $("evaluations").tBodies[0].replaceChildren(...rows);
    $("where").textContent = `page ${whole(this.page + 1)} of ${whole(this.pages)}, ${whole(this.order.length)} rows`;
    for (const id of ["first", "previous"]) $(id).disabled = this.page === 0;
    for (const id of ["next", "last"]) $(id).disabled = this.page === this.pages - 1;
  }

  worth(column) {  // whether a column has any content
    return !["steps", "seconds", "worker", "failure"].includes(column.name) || column.variable || column.data.some((v) => (column.labels || column.zero !== undefined ? v > 0 : !Number.isNaN(v)));
  }

  head(column) {
    const on = this.sorted.name === column.name && Boolean(this.sorted.variable) === Boolean(column.variable);
    const button = node("button", { type: "button" }, column.name);
    button.addEventListener("click", () => {
      this.sorted = { name: column.name, variable: column.variable, down: on && !this.sorted.down };
      this.page = 0;
      this.arrange();
    });
    const head = node("th", { scope: "col", className: isNumber(column) ? "number" : "" }, button);
    if (on) head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
    return head;
  }
}

function isNumber(column) {
  return !column.labels && !column.bits && !column.time && column.per === 1;
}

function ranks(column) {  // of labels, in alphabetical order
  if (!column.labels) return null;
  const order = column.labels.map((label, i) => i).sort((a, b) => (column.labels[a] < column.labels[b] ? -1 : 1));
  const rank = new Array(order.length);
  order.forEach((label, i) => { rank[label] = i; });
  return rank;
}

function textOf(column, i) {
  const { data, per, labels, bits, time, zero, rough } = column;
  if (bits) {
    let text = "";
    for (let k = 0; k < bits; k++) text += (data[i * per + (k >> 3)] >> (7 - (k & 7))) & 1;
    return text;
  }
  const words = [];
  for (let k = 0; k < per; k++) {
    const v = data[i * per + k];
    words.push(labels ? labels[v] : time ? clock(v) : v === 0 && zero !== undefined ? zero : rough && Number.isFinite(v) ? short(v) : exact(v));
  }
  return words.some((word) => word) ? words.join(", ") : "";  // none in an inactive variable
}

function clock(v) {
  const date = new Date(v * 1000);
  if (Number.isNaN(date.getTime())) return "";
  const two = (n) => String(n).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function cell(column, i) {
  const text = textOf(column, i);
  return node("td", { className: column.bits ? "bits" : isNumber(column) ? "number" : "", title: text.length > 30 ? text : "" }, text);
}

// The page.

function tile(what, number, more, kind, title) {
  return node("div", { className: `tile ${kind || ""}`, title: title || "" }, node("div", { className: "what" }, what), node("div", { className: "number" }, number), ...more.map((m) => (typeof m === "string" ? node("div", { className: "more" }, m) : m)));
}

function drawTiles(run) {
  const best = run.best[0], [started, ended] = run.times;
  const call = run.bestRow < 0 ? -1 : table.column("evaluation").data[run.bestRow], found = call < 0 ? [] : [call ? `at evaluation ${whole(call)}` : "known before"];
  const name = `${run.direction === "maximize" ? "largest" : "smallest"} value`, tiles = [];
  if (run.objectives) {
    const { directions, front, rows, count, knee } = run.objectives, at = rows.indexOf(knee), m = directions.length;
    const values = directions.map(([objective], j) => `${objective} ${short(front[at * m + j])}`);
    tiles.push(tile("front", `${whole(count)} points`, at < 0 ? [] : [`knee: ${values.join(", ")}`], "first wide"));
  } else if (run.recommended) {
    const [mean, error] = run.recommended;
    const more = [`estimated mean${Number.isFinite(error) ? " ± standard error" : ""}`, `${name} observed ${short(best)}`];
    tiles.push(tile("recommended point", withError(mean, error), more, "first wide", exact(mean)));
  } else {
    tiles.push(tile(name, short(best), found, "first", exact(best)));
  }
  const more = run.budget ? [node("progress", { max: run.budget, value: Math.min(run.calls, run.budget) }), `of ${whole(run.budget)}`] : [];
  tiles.push(tile("evaluations", whole(run.calls), more));
  tiles.push(tile("failed", whole(run.failed), run.calls ? [`${Number(((100 * run.failed) / run.calls).toPrecision(2))} %`] : [], run.failed ? "bad" : ""));
  if (run.curves) tiles.push(tile("steps", whole(run.curves.steps), [`${whole(run.curves.stops)} evaluations stopped`]));
  if (Number.isFinite(ended - started)) tiles.push(tile("time", duration(ended - started), [clock(started)]));
  $("tiles").replaceChildren(...tiles);
}

function drawMarginals(run) {
  const rows = [];
  for (const each of run.marginals) {
    rows.push(node("span", { className: "name", title: each.name }, each.name));
    let picture;
    if (each.span) {
      const [middle, low, high] = each.span, [value, from, to] = each.values;
      const bar = node("i"), dot = node("b");
      bar.style.left = `${100 * low}%`;
      bar.style.width = `${100 * (high - low)}%`;
      dot.style.left = `${100 * middle}%`;
      picture = node("div", { className: "range" }, bar, dot);
      tipOn(picture, each.name, [["at the mean", exact(value)], ["68 % between", `${exact(from)} and ${exact(to)}`]]);
    } else {
      const top = each.p.indexOf(Math.max(...each.p));
      const bars = each.labels.map((label, i) => {
        const bar = node("i", { className: i === top ? "top" : "" }, !each.bit && each.p[i] > 0.12 ? label : "");
        bar.style.width = `${100 * each.p[i]}%`;
        return bar;
      });
      picture = node("div", { className: each.bit ? "options bit" : "options" }, ...(each.bit ? [bars[1]] : bars));
      const pairs = each.labels.map((label, i) => [label, exact(each.p[i])]);
      tipOn(picture, each.name, pairs.length > 12 ? pairs.sort((a, b) => b[1] - a[1]).slice(0, 12) : pairs);
    }
    rows.push(picture);
  }
  $("marginals").replaceChildren(...rows);
}

function entries(each, texts, other) {
  if (!texts.length) return node("td", {}, "none");
  const rest = each.count > texts.length ? ` … and ${whole(each.count - texts.length)} more` : "";
  if (!each.bits) return node("td", {}, texts.join(", ") + rest);
  // Bits that differ from those of the other point are highlighted.
  const parts = texts.map((text, i) => (other.length && text !== other[i] ? node("span", { className: "off" }, text) : text));
  return node("td", { className: "bits" }, ...parts, rest);
}

function certainty(each) {
  if (!each.sure || !each.sure.length) return "";
  const words = each.sure.slice(0, 8).map((sure) => {
    if (sure.length === 1) return short(sure[0]);
    return sure[0] === sure[1] ? `at least 68 % at ${short(sure[0])}` : `68 % between ${short(sure[0])} and ${short(sure[1])}`;
  });
  if (each.sure.length === 1) return words[0];
  if (each.sure[0].length === 1) {
    const p = each.sure.map((sure) => sure[0]);
    return `${short(Math.min(...p))} to ${short(Math.max(...p))} each`;
  }
  return words.join("; ") + (each.sure.length > 8 ? " …" : "");
}

function tableOf(id, heads, rows) {
  $(id).replaceChildren(node("thead", {}, node("tr", {}, ...heads.map((head) => node("th", {}, head)))), node("tbody", {}, ...rows));
}

function drawConfiguration(run) {
  const chosen = run.recommended ? "recommended" : run.objectives ? "knee of the front" : "best";
  $("configuration-title").textContent = run.recommended ? "Recommended configuration" : run.objectives ? "Knee of the front" : "Best configuration";
  const rows = run.configuration.map((each) => node("tr", {}, node("td", {}, each.name), entries(each, each.best, [])));
  if (run.bestRow >= 0 && !run.recommended && !run.objectives) {  // the attributes of that evaluation
    for (const column of table.columns.filter((c) => c.attribute)) rows.push(node("tr", { className: "attribute" }, node("td", {}, column.name), node("td", {}, textOf(column, run.bestRow))));
  }
  tableOf("configuration", ["variable", chosen], rows);
  if (!run.folded) return;
  tableOf("mode", ["variable", "most probable", "its probability"], run.configuration.map((each) => {
    const sure = node("td", {}, certainty(each));
    if (each.sure.length === 1) sure.title = each.sure[0].map(exact).join(" to ");
    return node("tr", {}, node("td", {}, each.name), entries(each, each.mode, each.best), sure);
  }));
}

function drawFailures(run) {
  $("failures-card").hidden = !run.failures.length;
  $("failures").replaceChildren(
    ...run.failures.map((each) => {
      const last = each.text.trim().split("\n").pop();
      const times = `${whole(each.times)} ×, first at evaluation ${whole(each.call)}`;
      return node("details", {}, node("summary", {}, last, node("span", { className: "times" }, times)), node("pre", {}, each.text));
    }),
  );
}

function some(shown, all) {
  return shown < all ? `Shown: ${whole(shown)} of ${whole(all)} variables, evenly chosen.` : "";
}

const charts = {};
let table;

function show(run) {
  document.querySelector("main").hidden = false;
  $("name").textContent = run.name;
  document.title = `${run.name} · knobless`;
  const fun = run.facts.find(([name]) => name === "fun");
  const way = run.objectives ? run.objectives.directions.map(([name, direction]) => `${direction} ${name}`).join(", ") : run.direction;
  $("subtitle").textContent = `${way}${fun ? ` ${fun[1]}` : ""} over ${whole(run.variables)} variable${run.variables === 1 ? "" : "s"}`;
  table.take(run);
  drawTiles(run);
  drawLegend(run);
  charts.values.show(valuesContent(run));
  drawCurves(run);
  drawObjectives(run);
  drawInternals(run);
  drawImportance(run);
  drawSlices(run);
  drawParallel(run);
  drawConfiguration(run);
  drawFailures(run);
  $("left-out").textContent = run.leftOut ? `${whole(run.leftOut)} variables are too wide for this table and are in the journal only.` : "";
  $("facts").replaceChildren(...run.facts.flatMap(([name, text]) => [node("dt", {}, name), node("dd", {}, text)]));
}

function drawInternals(run) {  // of the algorithm: charts are drawn when the element is opened
  $("internals").hidden = !run.folded;
  if (!run.folded) return;
  const last = run.steps.iteration.length - 1;
  const { iteration, lam_r, eps, entropy } = run.steps;
  const words = last < 0 ? [] : [`${whole(iteration[last])} iterations`, `sample size ${Number(lam_r[last].toPrecision(3))}`];
  if (last >= 0 && Number.isFinite(eps[last])) words.push(`step length ${Number(eps[last].toPrecision(3))}`);
  if (last >= 0) words.push(`entropy ${Number(entropy[last].toPrecision(4))} of ${Number(entropy[0].toPrecision(4))} nats`);
  $("internals-hint").textContent = words.join(", ");
  for (const name of ["eps", "snr"]) $(name).parentElement.hidden = !run.steps[name].some(Number.isFinite);
  charts.lam_r.show(stepContent(run, "lam_r", "λ_r"));
  charts.eps.show(stepContent(run, "eps", "ε"));
  charts.snr.show(stepContent(run, "snr", "‖s‖²/γ", run.alpha));
  charts.theta.show(run);
  charts.entropies.show(run, run.entropies, "entropy, relative to the start");
  $("entropies-hint").textContent = `Of the distribution, relative to the start (for a number: standard deviation). ${some(run.entropies.names.length, run.variables)}`;
  drawMarginals(run);
  $("theta-hint").textContent = some(run.marginals.length, run.variables);
  $("marginals-hint").textContent = some(run.marginals.length, run.variables);
}

function runsContent(runs) {  // the best value so far of several runs
  const turn = runs[0].direction === "maximize" ? -1 : 1;
  const first = range(runs.flatMap((run) => Array.from(run.extent)));
  const at = (run, x) => { const i = lastAtOrBefore(run.improvements[0], x); return i < 0 ? NaN : run.improvements[1][i]; };
  return {
    x: [0, Math.max(...runs.map((run) => run.calls), 1)],
    y: first,
    layers: (place) => runs.map((run, i) => drawn("path", { class: `run run-${i % 8}`, d: path(run.improvements[0], run.improvements[1], place, true) })),
    look: (x) => {
      const call = Math.max(Math.round(x), 1), found = runs.map((run) => [run.name, at(run, call)]);
      found.sort((a, b) => turn * (a[1] - b[1]));
      return { x: call, title: `evaluation ${whole(call)}`, pairs: found.slice(0, 12).map(([name, v]) => [name, short(v)]), marks: found.map(([, v]) => v).filter(Number.isFinite) };
    },
  };
}

function showSeveral(runs) {
  $("choose").hidden = false;
  $("chosen").replaceChildren(...runs.map((run, i) => node("option", { value: String(i) }, run.name)));
  $("chosen").addEventListener("change", () => { table.page = 0; show(runs[Number($("chosen").value)]); });
  show(runs[0]);
  $("runs-card").hidden = false;
  $("runs-legend").replaceChildren(...runs.map((run, i) => node("span", { className: `of-run-${i % 8}` }, run.name)));
  charts.runs.show(runsContent(runs));
  const rows = runs.map((run) => [run.name, run.recommended ? withError(...run.recommended) : short(run.best[0]), whole(run.calls), whole(run.failed), duration(run.times[1] - run.times[0])]);
  tableOf("runs-table", ["run", "value", "evaluations", "failed", "time"], rows.map((cells) => node("tr", {}, ...cells.map((text) => node("td", {}, text)))));
}

function drawLegend(run) {
  const words = [["best", run.recommended ? "best observed so far" : "best so far"], ["median", "median"], ["band", "quartiles"], ["dots", "evaluations"]];
  if (run.recommended) words.unshift(["recommended", "mean of the recommended point"]);
  $("values-legend").replaceChildren(...words.map(([kind, text]) => node("span", { className: `of-${kind}` }, text)));
}

// Live reports: polls for new rows, less often if answers take long, and not while the page is hidden.

const live = { run: 0, rows: -1, ended: NaN, error: "" };

async function poll() {
  const asked = performance.now();
  if (!document.hidden) {
    try {
      const answer = await fetch(`data?run=${live.run}&since=${Math.max(live.rows, 0)}`);
      const run = JSON.parse(await answer.text(), unpacked);
      live.error = run.error || "";
      if (!run.error && (!run.unchanged)) {
        Object.assign(live, { run: run.run, rows: run.rows, ended: run.times[1] });
        show(run);
      }
    } catch (error) {
      live.error = "the server has gone";
    }
  }
  pulse();
  setTimeout(poll, Math.max(1000, 4 * (performance.now() - asked)));
}

function pulse() {
  const age = Date.now() / 1000 - live.ended, pill = $("live");
  pill.hidden = false;
  pill.classList.toggle("wrong", Boolean(live.error));
  pill.classList.toggle("quiet", !live.error && !(age < 60));
  pill.textContent = live.error || (Number.isFinite(age) ? `live, last evaluation ${duration(Math.max(Math.round(age), 0))} ago` : "live, nothing evaluated yet");
}

function start() {
  table = new Table();
  for (const id of ["values", "curves", "runs", "lam_r", "eps", "snr", "front", "hypervolume"]) charts[id] = new Chart($(id));
  for (const id of ["theta", "entropies"]) charts[id] = new HeatMap($(id));
  const run = JSON.parse($("data").textContent, unpacked);
  $("runs-card").hidden = true;
  if (run && run.several) {
    showSeveral(run.several);
  } else if (run) {
    show(run);
  } else {
    table.sorted.down = true;  // newest first
    poll();
  }
}

start();
