// SPDX-License-Identifier: Apache-2.0
// One leaf over the steps.

let chosen = -1;
let leafCharts = [];

function chooseLeaf(leaf, go = false) {
  chosen = leaf;
  drawLeaf();
  leafRows?.draw();
  if (go) {
    byId("leaf").scrollIntoView();
    byId("leaf-next").focus({preventScroll: true});
  }
}

// The columns in which the leaf is an array with statistics.
function columnsOf(leaf) {
  const columns = [];
  for (let c = 0; c < run.columns; ++c) {
    if (!Number.isNaN(run.grid.l2[run.cell(leaf, c)])) columns.push(c);
  }
  return columns;
}

function drawLeaf() {
  leafCharts.forEach((chart) => chart.destroy());
  leafCharts = [];
  const none = run.grid.names.length === 0;
  byId("no-leaf").hidden = !none;
  if (none) {
    byId("no-leaf").textContent = "No leaves were looked at.";
    fill(byId("leaf-charts"));
    return;
  }
  const leaf = chosen = Math.min(Math.max(chosen, 0),
      run.grid.names.length - 1);
  byId("leaf-name").textContent = shown(run.grid.names[leaf]);
  byId("leaf-before").disabled = leaf === run.order[0];
  byId("leaf-next").disabled = leaf === run.order.at(-1);
  const newest = run.newest(leaf);
  const at = run.cell(leaf, newest);
  const bad = run.badCells(leaf);
  fill(byId("leaf-facts"),
      ...fact("Type", shown(run.typeOf(leaf, newest).text)),
      ...fact("Size", size(run.grid.bytes[leaf])),
      ...fact("On disk", run.grid.stored[leaf] ?
          size(run.grid.stored[leaf]) : "in its record"),
      ...fact("Value since step", String(run.grid.since[leaf])),
      ...fact("Another value in",
          `${count(run.changesOf(leaf))} of ` +
          plural(Math.max(run.columns - 1, 0), "step", "steps")),
      ...fact("L2", known(run.grid.l2[at])),
      ...fact("NaN or Inf", bad ? element("span", {class: "cross"},
          `✕ in ${plural(bad, "step", "steps")} of those here`) : ""));

  const columns = columnsOf(leaf);
  const x = columns.map((c) => run.stepOf(c));
  const take = (name) => columns.map((c) => run.grid[name][run.cell(leaf, c)]);
  // A chart that is drawn where nothing has a size yet stays empty.
  fill(byId("leaf-charts"));
  const add = (title, series, options) => {
    const {box, figure} = figureOf(title);
    byId("leaf-charts").append(figure);
    leafCharts.push(new StepChart(box, series, {label: title, ...options}));
    return figure;
  };
  if (columns.length > 0) {
    add("L2 norm", [{label: "L2", color: "first", x, y: take("l2")}]);
    const mean = take("mean");
    const std = take("std");
    const figure = add("Values: mean, mean ± std, least and largest", [
      {label: "mean", color: "first", x, y: mean, width: 2},
      {label: "mean + std", color: "first", ground: "soft", width: 0.5, x,
        y: mean.map((m, i) => m + std[i]), fill: 2},
      {label: "mean − std", color: "first", width: 0.5, x,
        y: mean.map((m, i) => m - std[i])},
      {label: "largest", color: "fourth", ground: "softer", width: 1, x,
        y: take("max"), fill: 4},
      {label: "least", color: "fourth", width: 1, x, y: take("min")},
    ]);
    figure.setAttribute("id", "fan");
    const change = columns.map((c) => run.changeOf(leaf, c));
    if (change.some((value) => value > 0)) {
      add("|change of L2| / L2: at most the update ratio", [
        {label: "change", color: "third", x,
          y: change.map((value) => value > 0 ? value : NaN)}], {log: true});
    }
    if (bad) {
      add("NaN and Inf", [
        {label: "NaN", color: "bad", x, y: take("nan"), stepped: true},
        {label: "Inf", color: "second", x, y: take("inf"), stepped: true},
      ], {zero: true, marks: false});
    }
  }
  const histogram = run.histogramOf.get(run.grid.names[leaf]);
  if (histogram && histogram.at.length) {
    addHistograms(histogram, add);
  }
  if (columns.length === 0) {
    byId("no-leaf").hidden = false;
    byId("no-leaf").textContent =
        "It is no array of numbers, or its steps were saved without " +
        "statistics: there is nothing to draw.";
  }
}

// The first, the middle and the newest step as lines, and all as colours.
function addHistograms(histogram, add) {
  const {low, high, bins, at, counts} = histogram;
  const wide = (high - low) / bins || 1;
  const middle = Array.from({length: bins}, (_, b) => low + (b + 0.5) * wide);
  const picked = [...new Set([0, (at.length - 1) >> 1, at.length - 1])];
  const colors = ["second", "third", "first"];
  const lines = add("How the values are spread", picked.map((column, i) => ({
    label: `step ${String(run.steps.step[at[column]])}`,
    color: colors[i + 3 - picked.length], x: middle, stepped: "middle",
    y: Array.from(counts.subarray(column * bins, (column + 1) * bins)),
  })), {x: "value", zero: true});
  lines.querySelector("figcaption").after(element("div", {class: "keys"},
      ...picked.map((column, i) => keyOf(colors[i + 3 - picked.length],
          `step ${String(run.steps.step[at[column]])}`))));
  const canvas = element("canvas", {role: "img", class: "histogram",
    "aria-label": "Histograms over the steps"});
  const figure = element("figure", {}, element("figcaption", {},
      element("span", {}, "Histograms over the steps"),
      element("span", {class: "now"}, `${number(low)} to ${number(high)}`)),
  element("div", {class: "chart"}, canvas));
  byId("leaf-charts").append(figure);
  drawHistograms(canvas, histogram);
}

function drawHistograms(canvas, {bins, at, counts}) {
  const width = canvas.parentElement.clientWidth;
  const height = 150;
  canvas.style.width = "100%";
  const context = prepare(canvas, width, height + 18);
  let most = 1;
  for (const value of counts) if (value > most) most = value;
  const each = width / at.length;
  for (let c = 0; c < at.length; ++c) {
    for (let b = 0; b < bins; ++b) {
      const value = counts[c * bins + b];
      if (!value) continue;
      const share = Math.log1p(value) / Math.log1p(most);
      context.fillStyle = `rgb(${rampColor(share).join()})`;
      context.fillRect(c * each, height - (b + 1) * height / bins,
          each + 0.4, height / bins + 0.4);
    }
  }
  context.fillStyle = color("faint");
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  context.fillText(String(run.steps.step[at[0]]), 0, height + 4);
  context.textAlign = "right";
  if (at.length > 1) {
    context.fillText(String(run.steps.step[at[at.length - 1]]), width,
        height + 4);
  }
}

// What is worth a look at first: NaN or Inf, else the largest array.
function worthALook() {
  const bad = run.order.find((leaf) => run.badCells(leaf));
  if (bad !== undefined) return bad;
  return run.order.filter((leaf) => columnsOf(leaf).length)
      .reduce((best, leaf) => run.grid.bytes[leaf] > run.grid.bytes[best] ?
          leaf : best, run.order[0] ?? -1);
}

function startLeaf() {
  const move = (by) => () =>
      chooseLeaf(run.order[run.order.indexOf(chosen) + by]);
  byId("leaf-before").addEventListener("click", move(-1));
  byId("leaf-next").addEventListener("click", move(1));
}
