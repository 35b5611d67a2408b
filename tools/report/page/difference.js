// SPDX-License-Identifier: Apache-2.0
// What differs between two steps, by the digests of their values.

const CHANGES = ["changed", "added", "removed", "retyped", "same"];
let diffRows = null;

function changeBetween(leaf, before, after) {
  const a = run.cell(leaf, before);
  const b = run.cell(leaf, after);
  const {value, type} = run.grid;
  if (!value[a] && !value[b]) return null;
  if (!value[a]) return "added";
  if (!value[b]) return "removed";
  if (type[a] !== type[b]) return "retyped";
  return value[a] === value[b] ? "same" : "changed";
}

function startDiff() {
  const side = (row, id) => run.cell(row.leaf, Number(byId(id).value));
  const moved = (row) => {
    const a = run.grid.l2[side(row, "before")];
    const b = run.grid.l2[side(row, "after")];
    return a === b ? 0 : Math.abs(b - a) / Math.max(a, b);
  };
  const norm = (title, id) => ({title, number: true,
    sort: (row) => run.grid.l2[side(row, id)],
    cell: (row) => known(run.grid.l2[side(row, id)])});
  const bad = (row, id) => run.grid.nan[side(row, id)] +
      run.grid.inf[side(row, id)];
  diffRows = new Rows(byId("diff-table"), byId("diff-more"), [
    {title: "Leaf", sort: (row) => run.grid.names[row.leaf],
      cell: (row) => element("button", {type: "button", class: "link name",
        on: {click: () => chooseLeaf(row.leaf, true)}},
      shown(run.grid.names[row.leaf]))},
    {title: "Change", sort: (row) => CHANGES.indexOf(row.change),
      cell: (row) => row.change},
    {title: "Type", sort: (row) => row.type, cell: (row) => shown(row.type)},
    {title: "Size", number: true, sort: (row) => run.grid.bytes[row.leaf],
      cell: (row) => size(run.grid.bytes[row.leaf])},
    norm("L2 before", "before"), norm("L2 after", "after"),
    {title: "Change of L2", number: true, sort: moved,
      cell: (row) => percent(moved(row))},
    {title: "NaN, Inf", number: true, sort: (row) => bad(row, "after"),
      cell: (row) => bad(row, "before") || bad(row, "after") ?
          element("span", {class: "badly"},
              `${count(bad(row, "before"))} → ${count(bad(row, "after"))}`) :
          ""},
  ], {rowClass: (row) => bad(row, "before") || bad(row, "after") ? "bad" :
                                                                   false});
  for (const id of ["before", "after", "changes"]) {
    byId(id).addEventListener("change", showDiff);
  }
  byId("swap").addEventListener("click", () => {
    const before = byId("before").value;
    byId("before").value = byId("after").value;
    byId("after").value = before;
    showDiff();
  });
}

function showDiff() {
  const before = Number(byId("before").value);
  const after = Number(byId("after").value);
  const all = new Map(CHANGES.map((change) => [change, []]));
  run.order.forEach((leaf) => {
    const change = changeBetween(leaf, before, after);
    if (change === null) return;
    const types = [before, after]
        .filter((c) => run.grid.value[run.cell(leaf, c)])
        .map((c) => run.typeOf(leaf, c).text);
    all.get(change).push({leaf, change, type: [...new Set(types)]
        .join(" → ")});
  });
  const kept = byId("changes").value;
  const differ = [...all].filter(([change]) => change !== "same")
      .reduce((sum, [, rows]) => sum + rows.length, 0);
  fill(byId("changes"), element("option", {value: ""},
      `what differs (${count(differ)})`), ...[...all].map(([change, rows]) =>
      element("option", {value: change}, `${change} (${count(rows.length)})`)));
  byId("changes").value = CHANGES.includes(kept) ? kept : "";
  const wanted = byId("changes").value;
  const rows = CHANGES.filter((change) => wanted ? change === wanted :
      change !== "same").flatMap((change) => all.get(change));
  const said = [...all].filter(([, found]) => found.length)
      .map(([change, found]) => `${count(found.length)} ${change}`);
  byId("diff-count").textContent = before === after ?
      "These are the same step." :
      `Step ${String(run.stepOf(before))} and step ` +
      `${String(run.stepOf(after))}: ${said.join(", ")}.`;
  diffRows.set(rows);
}

function newDiff() {
  fillSteps(byId("before"), run.columns - 2);
  fillSteps(byId("after"), run.columns - 1);
  showDiff();
}
