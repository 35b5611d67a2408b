// SPDX-License-Identifier: Apache-2.0
// Leaves over steps as colours. Chart.js has no such chart: a canvas.

// Cividis: even steps of lightness, alike for those who see colours otherwise.
const RAMP = [[0, 32, 77], [0, 49, 111], [57, 72, 107], [87, 93, 109],
  [112, 113, 115], [138, 134, 120], [167, 157, 117], [199, 181, 106],
  [229, 207, 88], [255, 234, 70]];
const MOST_ROWS = 100;

// What a cell shows. `log`: colours go by the logarithm. `join`: of the leaves
// of a folded row, with the number of elements of each.
const rms = (values, counts) => {
  let sum = 0;
  let all = 0;
  values.forEach((value, i) => {
    if (Number.isNaN(value)) return;
    sum += value * value * counts[i];
    all += counts[i];
  });
  return all ? Math.sqrt(sum / all) : NaN;
};
const known0 = (values) => values.filter((value) => !Number.isNaN(value));
const largest = (values) => {
  const all = known0(values);
  return all.length ? all.reduce((a, b) => Math.max(a, b)) : NaN;
};
const MEASURES = {
  l2: {name: "L2 norm", log: true, hint: "The root of the sum of squares of " +
      "the finite elements.", of: (leaf, c) => run.grid.l2[run.cell(leaf, c)],
  join: (values) => {
    const all = known0(values);
    return all.length ? Math.sqrt(all.reduce((sum, v) => sum + v * v, 0)) : NaN;
  }},
  change: {name: "change of the L2 norm", log: true, hint:
      "|L2 − L2 of the step before it here| / L2. The update ratio " +
      "‖w − w before‖ / ‖w‖ would read the arrays; it is never less than " +
      "this.", of: (leaf, c) => run.changeOf(leaf, c), join: largest},
  std: {name: "standard deviation", log: true, hint: "Of the finite elements.",
    of: (leaf, c) => run.grid.std[run.cell(leaf, c)], join: rms},
  most: {name: "largest size of a value", log: true,
    hint: "max(|min|, |max|) of the finite elements.", of: (leaf, c) => {
      const at = run.cell(leaf, c);
      return Math.max(Math.abs(run.grid.min[at]), Math.abs(run.grid.max[at]));
    }, join: largest},
  zeros: {name: "share of zeros", hint: "Zeros of all elements.",
    of: (leaf, c) => {
      const at = run.cell(leaf, c);
      const all = run.typeOf(leaf, c).count;
      return run.grid.value[at] && all ? run.grid.zero[at] / all : NaN;
    }, join: largest},
  new: {name: "another value", hint: "1 where the value is another than in " +
      "the step before it here.", of: (leaf, c) => {
    const at = run.cell(leaf, c);
    if (!run.grid.value[at]) return NaN;
    return c > 0 && run.grid.value[at] !== run.grid.value[at - 1] ? 1 : 0;
  }, join: largest},
};

let leafFilter = "";
const heat = {rows: [], columns: [], values: null, row: 0, column: 0};

function matches(leaf, filter) {
  const type = run.grid.types[run.grid.type[run.cell(leaf, run.columns - 1)]];
  const text = `${run.lower[leaf]} ${type?.text ?? ""}`;
  return filter.toLowerCase().split(/\s+/).every((part) => text.includes(part));
}

// Arrays with statistics, one to a row or folded at `depth` parts.
function heatRows(depth) {
  const rows = new Map();
  run.order.forEach((leaf) => {
    const name = run.grid.names[leaf];
    const column = run.newest(leaf);
    if (column < 0 || !run.typeOf(leaf, column).count) return;
    if (!matches(leaf, leafFilter)) return;
    const key = depth ? run.parts[leaf].slice(0, depth).join("/") : name;
    if (!rows.has(key)) rows.set(key, {name: key, leaves: []});
    rows.get(key).leaves.push(leaf);
  });
  return [...rows.values()];
}

function deepest() {
  return run.parts.reduce((most, parts) => Math.max(most, parts.length), 1);
}

function chosenRows() {
  const fold = byId("fold").value;
  if (fold !== "auto") return heatRows(Number(fold));
  const every = heatRows(0);
  if (every.length <= MOST_ROWS) return every;
  for (let depth = deepest() - 1; depth > 1; --depth) {
    const rows = heatRows(depth);
    if (rows.length <= MOST_ROWS) return rows;
  }
  return heatRows(1);
}

function inRange() {
  const columns = [];
  for (let c = 0; c < run.columns; ++c) {
    const step = run.stepOf(c);
    if (step >= range[0] && step <= range[1]) columns.push(c);
  }
  return columns;
}

// Values of all cells; what is bad in them; their colours, from 0 to 1.
function computeHeat() {
  const measure = MEASURES[byId("measure").value];
  heat.rows = chosenRows();
  heat.columns = inRange();
  const {rows, columns} = heat;
  heat.values = rows.map((row) => {
    const counts = row.leaves.map((leaf) =>
        run.typeOf(leaf, Math.max(run.newest(leaf), 0)).count);
    return columns.map((c) => {
      if (row.leaves.length === 1) return measure.of(row.leaves[0], c);
      return measure.join(row.leaves.map((leaf) => measure.of(leaf, c)),
          counts);
    });
  });
  heat.bad = rows.map((row) => columns.map((c) => row.leaves.some((leaf) => {
    const at = run.cell(leaf, c);
    return run.grid.nan[at] > 0 || run.grid.inf[at] > 0;
  })));
  const seen = (value) => measure.log ?
      value > 0 ? Math.log(value) : NaN : value;
  const extent = (all) => {
    let low = Infinity;
    let high = -Infinity;
    for (const values of all) {
      for (const value of values) {
        const place = seen(value);
        if (place < low) low = place;
        if (place > high && place < Infinity) high = place;
      }
    }
    return [low, high];
  };
  const alike = byId("scale").value === "all" ? extent(heat.values) : null;
  heat.extent = alike && alike.map((x) => measure.log ? Math.exp(x) : x);
  heat.colors = heat.values.map((values) => {
    const [low, high] = alike ?? extent([values]);
    return values.map((value) => {
      if (Number.isNaN(value) || !Number.isFinite(value)) return -1;
      if (measure.log && value <= 0) return 0;
      // What never moves is not half of anything.
      return high > low ? (seen(value) - low) / (high - low) : 0;
    });
  });
}

function rampColor(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[low].map((from, i) =>
      Math.round(from + (RAMP[low + 1][i] - from) * (at - low)));
}

function rampKey() {
  const canvas = element("canvas", {"aria-hidden": "true"});
  canvas.width = 150;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  for (let i = 0; i < 150; ++i) {
    context.fillStyle = `rgb(${rampColor(i / 149).join()})`;
    context.fillRect(i, 0, 1, 1);
  }
  return canvas;
}

// `width` pixels of canvas for boxes of CSS.
function prepare(canvas, width, height) {
  const scale = printing ? 2 : devicePixelRatio;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

// Each column reaches half way to its neighbours.
function placeColumns(left, width) {
  const steps = heat.columns.map((c) => run.stepOf(c));
  const first = steps[0];
  const reach = steps.at(-1) - first || 1;
  // Evenly, where there are few: a lone column would be a line.
  const edges = [left];
  for (let i = 1; i < steps.length; ++i) {
    const middle = steps.length < 40 ? i / steps.length :
        ((steps[i - 1] + steps[i]) / 2 - first) / reach;
    edges.push(left + middle * width);
  }
  edges.push(left + width);
  return edges;
}

function drawHeat() {
  const canvas = byId("heat-map");
  const width = byId("heat-box").clientWidth;
  const {rows, columns} = heat;
  const empty = rows.length === 0 || columns.length === 0;
  byId("heat-box").hidden = byId("heat-readout").hidden = empty;
  byId("no-heat").hidden = !empty;
  if (empty) {
    byId("no-heat").textContent = rows.length === 0 ?
        leafFilter ? "No array has such a name." :
            "No leaf is an array with statistics." :
        "None of these steps had its leaves looked at: show more steps.";
    return;
  }
  const high = Math.max(3, Math.min(22, Math.floor(560 / rows.length)));
  const left = Math.round(Math.min(240, width * 0.36));
  const bottom = 20;
  const context = prepare(canvas, width, rows.length * high + bottom);
  const edges = placeColumns(left, width - left - 1);
  Object.assign(heat, {edges, high, left, height: rows.length * high});

  // A pixel for each cell, each column stretched to its place.
  const image = new ImageData(columns.length, rows.length);
  for (let r = 0; r < rows.length; ++r) {
    for (let i = 0; i < columns.length; ++i) {
      const share = heat.colors[r][i];
      if (share < 0) continue;
      image.data.set([...rampColor(share), 255], (r * columns.length + i) * 4);
    }
  }
  const small = element("canvas");
  small.width = columns.length;
  small.height = rows.length;
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  for (let i = 0; i < columns.length; ++i) {
    context.drawImage(small, i, 0, 1, rows.length, edges[i], 0,
        edges[i + 1] - edges[i] + 0.4, heat.height);
  }
  // What is not finite is never too small to see: a box and a cross.
  for (let r = 0; r < rows.length; ++r) {
    for (let i = 0; i < columns.length; ++i) {
      if (heat.bad[r][i]) drawBad(context, edges[i], edges[i + 1], r * high);
    }
  }
  drawNames(context, width);
  drawCursor(context);
  canvas.setAttribute("aria-label",
      `${MEASURES[byId("measure").value].name} of ${rows.length} rows of ` +
      `leaves over ${columns.length} steps. Arrow keys move, Enter opens.`);
}

function drawBad(context, from, to, top) {
  const wide = Math.max(to - from, 4);
  const high = Math.max(heat.high, 5);
  context.fillStyle = "#ff4d1f";
  context.fillRect((from + to - wide) / 2, top, wide, high);
  if (wide < 8 || high < 8) return;
  context.strokeStyle = "#fff";
  context.lineWidth = 1.6;
  context.beginPath();
  const x = (from + to) / 2;
  const y = top + high / 2;
  for (const turn of [-1, 1]) {
    context.moveTo(x - 3, y - 3 * turn);
    context.lineTo(x + 3, y + 3 * turn);
  }
  context.stroke();
}

// As much of the end of `text` as fits: the ends differ.
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 1;
  let high = text.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText("…" + text.slice(middle)).width <= width) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return "…" + text.slice(low);
}

function drawNames(context, width) {
  const {rows, high, left, edges, columns, height} = heat;
  context.font = "11px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace";
  context.fillStyle = color("faint");
  context.textBaseline = "middle";
  context.textAlign = "right";
  const each = Math.ceil(12 / high);
  for (let r = 0; r < rows.length; r += each) {
    context.fillText(fitted(context, shown(rows[r].name), left - 8), left - 6,
        (r + 0.5) * high + (each > 1 ? 3 : 0));
  }
  context.font = "11px system-ui, sans-serif";
  let free = left - 20;
  for (let i = 0; i < columns.length; ++i) {
    const text = String(run.stepOf(columns[i]));
    const half = context.measureText(text).width / 2;
    const at = Math.min((edges[i] + edges[i + 1]) / 2, width - half);
    if (at - half < free + 16) continue;
    context.textAlign = "center";
    context.fillText(text, at, height + 12);
    free = at + half;
  }
}

function drawCursor(context) {
  if (document.activeElement !== byId("heat-map") && !heat.pointed) return;
  const {row, column, edges, high} = heat;
  if (row >= heat.rows.length || column >= heat.columns.length) return;
  context.strokeStyle = color("text");
  context.lineWidth = 2;
  context.strokeRect(edges[column] - 1, row * high - 1,
      Math.max(edges[column + 1] - edges[column], 3) + 2, high + 2);
}

function sayCell() {
  const row = heat.rows[heat.row];
  const column = heat.columns[heat.column];
  if (!row || column === undefined) return;
  const value = heat.values[heat.row][heat.column];
  const bad = row.leaves.reduce((sum, leaf) => {
    const at = run.cell(leaf, column);
    return sum + run.grid.nan[at] + run.grid.inf[at];
  }, 0);
  fill(byId("heat-readout"), element("span", {class: "name"}, shown(row.name)),
      row.leaves.length > 1 ? ` (${count(row.leaves.length)} leaves)` : "",
      ` · step ${String(run.stepOf(column))} · `,
      Number.isNaN(value) ? "not known" :
          `${MEASURES[byId("measure").value].name} ${number(value)}`,
      bad ? ` · ✕ ${count(bad)} NaN or Inf` : "");
}

function showHeat() {
  computeHeat();
  const measure = MEASURES[byId("measure").value];
  byId("measure-hint").textContent = measure.hint;
  const [low, high] = heat.extent ?? [];
  const ends = low <= high ? [number(low), number(high)] :
                             ["its lowest", "its highest"];
  fill(byId("heat-keys"), element("span", {class: "key"}, ends[0], rampKey(),
      ends[1]), element("span", {class: "key"},
      element("span", {class: "cross"}, "✕"), "NaN or Inf in it"),
  `${plural(heat.rows.length, "row", "rows")} of ` +
      plural(heat.columns.length, "step", "steps"));
  heat.row = Math.min(heat.row, Math.max(heat.rows.length - 1, 0));
  heat.column = Math.min(heat.column, Math.max(heat.columns.length - 1, 0));
  drawHeat();
}

function openCell() {
  const row = heat.rows[heat.row];
  if (row) chooseLeaf(row.leaves[0], true);
}

function startHeat() {
  fill(byId("measure"), ...Object.entries(MEASURES).map(([key, {name}]) =>
      element("option", {value: key}, name)));
  for (const id of ["measure", "scale", "fold"]) {
    byId(id).addEventListener("change", showHeat);
  }
  byId("heat-filter").addEventListener("input", (event) => {
    leafFilter = event.target.value;
    showHeat();
  });
  const canvas = byId("heat-map");
  const find = (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / heat.high);
    const x = event.clientX - box.left;
    const column = heat.edges.findIndex((edge, i) =>
        x >= edge && x < (heat.edges[i + 1] ?? -1));
    heat.pointed = row >= 0 && row < heat.rows.length && column >= 0;
    if (heat.pointed) Object.assign(heat, {row, column});
    return heat.pointed;
  };
  const show = () => {
    drawHeat();
    sayCell();
  };
  canvas.addEventListener("pointermove", (event) => find(event) && show());
  canvas.addEventListener("pointerleave", () => {
    heat.pointed = false;
    drawHeat();
  });
  canvas.addEventListener("click", (event) => find(event) && openCell());
  canvas.addEventListener("focus", show);
  canvas.addEventListener("blur", drawHeat);
  canvas.addEventListener("keydown", (event) => {
    const ends = [heat.rows.length - 1, heat.columns.length - 1];
    const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
      ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0],
      Home: [0, -ends[1]], End: [0, ends[1]]}[event.key];
    if (event.key === "Enter") {
      event.preventDefault();  // Else it presses the button that it goes to.
      openCell();
    }
    if (!move) return;
    event.preventDefault();
    heat.row = Math.min(Math.max(heat.row + move[0], 0), ends[0]);
    heat.column = Math.min(Math.max(heat.column + move[1], 0), ends[1]);
    show();
  });
}

function newHeat() {
  const options = [element("option", {value: "auto"}, "as many as fit"),
    element("option", {value: "0"}, "every leaf")];
  for (let depth = 1; depth < deepest(); ++depth) {
    options.push(element("option", {value: String(depth)},
        `folded at ${plural(depth, "part", "parts")}`));
  }
  const before = byId("fold").value;
  fill(byId("fold"), ...options);
  byId("fold").value = options.some((o) => o.value === before) ? before :
                                                                 "auto";
  showHeat();
}
