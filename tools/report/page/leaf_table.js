// SPDX-License-Identifier: Apache-2.0
// The leaves of a step, and the lists of steps to choose from.

let leafRows = null;

// L2 over the steps, as small as a word.
function spark(leaf) {
  const canvas = element("canvas", {class: "spark", "aria-hidden": "true"});
  canvas.width = 180;
  canvas.height = 40;
  const columns = columnsOf(leaf);
  if (columns.length < 2) return canvas;
  const context = canvas.getContext("2d");
  let low = Infinity;
  let high = -Infinity;
  const values = columns.map((c) => run.grid.l2[run.cell(leaf, c)]);
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const place = (i) => 2 + i / (values.length - 1) * 176;
  context.strokeStyle = color("first");
  context.lineWidth = 2;
  context.beginPath();
  values.forEach((value, i) => context.lineTo(place(i),
      high > low ? 36 - (value - low) / (high - low) * 32 : 20));
  context.stroke();
  context.fillStyle = color("bad");
  columns.forEach((c, i) => {
    const at = run.cell(leaf, c);
    if (run.grid.nan[at] || run.grid.inf[at]) {
      context.fillRect(place(i) - 2, 0, 4, 40);
    }
  });
  return canvas;
}

function shownColumn() { return Number(byId("at").value); }

function startTable() {
  const grid = (name) => (leaf) =>
      run.grid[name][run.cell(leaf, shownColumn())];
  const typeText = (leaf) => run.typeOf(leaf, shownColumn()).text;
  const there = (leaf) => grid("value")(leaf) > 0;
  const statistic = (title, name) => ({title, number: true,
    sort: (leaf) => there(leaf) ? grid(name)(leaf) : NaN,
    cell: (leaf) => there(leaf) ? known(grid(name)(leaf)) : ""});
  const counted = (title, name) => ({title, number: true, sort: grid(name),
    cell: (leaf) => grid(name)(leaf) ? element("span", {class: "badly"},
        count(grid(name)(leaf))) : ""});
  leafRows = new Rows(byId("leaf-table"), byId("leaf-more"), [
    {title: "Leaf", sort: (leaf) => run.grid.names[leaf],
      cell: (leaf) => element("button", {type: "button", class: "link name",
        on: {click: () => chooseLeaf(leaf, true)}},
      shown(run.grid.names[leaf]))},
    {title: "L2 over steps", cell: spark},
    {title: "Type", sort: typeText, cell: (leaf) => there(leaf) ?
        shown(typeText(leaf)) : "—"},
    {title: "Size", number: true, sort: (leaf) => run.grid.bytes[leaf],
      cell: (leaf) => size(run.grid.bytes[leaf])},
    {title: "Changes", number: true, sort: (leaf) => run.changesOf(leaf),
      cell: (leaf) => run.changesOf(leaf) ? count(run.changesOf(leaf)) :
                                            "frozen"},
    statistic("L2", "l2"), statistic("Mean", "mean"), statistic("Std", "std"),
    statistic("Min", "min"), statistic("Max", "max"),
    counted("NaN", "nan"), counted("Inf", "inf"),
    {title: "Zeros", number: true,
      sort: (leaf) => MEASURES.zeros.of(leaf, shownColumn()),
      cell: (leaf) => percent(MEASURES.zeros.of(leaf, shownColumn()))},
  ], {rowClass: (leaf) => [grid("nan")(leaf) || grid("inf")(leaf) ? "bad" : "",
    leaf === chosen ? "chosen" : ""].join(" ").trim() || false});
  for (const [id, event] of [["search", "input"], ["at", "change"],
    ["only", "change"]]) {
    byId(id).addEventListener(event, showLeaves);
  }
}

function showLeaves() {
  const search = byId("search").value;
  const only = byId("only").value;
  const there = (leaf) => run.grid.value[run.cell(leaf, shownColumn())] > 0;
  const rows = [];
  run.order.forEach((leaf) => {
    if (only === "gone" ? there(leaf) : !there(leaf)) return;
    if (only === "bad" && !run.badCells(leaf)) return;
    if (only === "frozen" && run.changesOf(leaf)) return;
    if (matches(leaf, search)) rows.push(leaf);
  });
  byId("leaf-count").textContent = rows.length === 0 ?
      "No leaf fits." : `${plural(rows.length, "leaf", "leaves")} of ` +
      count(run.grid.names.length);
  leafRows.set(rows);
}

// The steps whose leaves are here, newest first; what is chosen stays.
function fillSteps(select, otherwise) {
  const before = select.selectedOptions[0]?.dataset.step;
  const options = [];
  for (let c = run.columns - 1; c >= 0; --c) {
    const at = run.grid.at[c];
    const says = [...run.namesAt(at).map(shown),
      ...(run.isBad(at) ? ["NaN or Inf"] : [])];
    options.push(element("option", {value: String(c),
      "data-step": String(run.stepOf(c))}, String(run.stepOf(c)) +
        (says.length ? ` (${clipped(says.join(", "), 40)})` : "")));
  }
  fill(select, ...options);
  const same = options.find((option) => option.dataset.step === before);
  select.value = same?.value ?? String(Math.max(otherwise, 0));
}

function newTable(follow) {
  if (follow) fill(byId("at"));
  fillSteps(byId("at"), run.columns - 1);
  showLeaves();
}
