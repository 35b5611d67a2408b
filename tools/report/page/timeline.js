// SPDX-License-Identifier: Apache-2.0
// The steps: bytes, metrics, and what is said of some of them.

let timeline = [];
let toldRows = null;

function drawTimeline() {
  timeline.forEach((chart) => chart.destroy());
  const {steps} = run;
  const bad = steps.step.some((_, at) => run.isBad(at));
  const tagged = run.named.length > 0;
  fill(byId("mark-keys"), ...(bad ? [element("span", {class: "key"},
      element("span", {class: "cross"}, "✕│"), "a step with NaN or Inf")] : []),
      ...(tagged ? [keyOf("dashes", run.branches.length ?
          "a tag, or where a branch begins" : "a tag")] : []));
  fill(byId("bytes-keys"),
      keyOf("area solid", "new: written by the save"),
      keyOf("area soft", "shared with steps before it"),
      keyOf("second", "stored for it alone: freed with it"));
  timeline = [new StepChart(byId("bytes-chart"), [
    {label: "new", color: "first", ground: "solid", x: steps.step,
      y: steps.new, fill: "origin", width: 1},
    {label: "stored for it alone", color: "second", x: steps.step,
      y: steps.alone, width: 1.4},
    {label: "all of the step", color: "first", ground: "soft", x: steps.step,
      y: steps.all, fill: "origin", width: 1},
  ], {bytes: true, names: true, label: "Bytes of each step over the steps"})];

  const order = ["second", "first", "third", "fourth"];
  fill(byId("metrics"));
  run.metrics.forEach((metric, index) => {
    const x = Array.from(metric.at, (at) => steps.step[at]);
    const newest = metric.value[metric.value.length - 1];
    const {box, figure} = figureOf(shown(metric.name), number(newest));
    byId("metrics").append(figure);
    const line = {color: order[index % order.length]};
    const series = [{...line, label: shown(metric.name), x, y: metric.value}];
    for (const branch of run.branches) {
      for (const theirs of branch.metrics) {
        if (theirs.name !== metric.name) continue;
        // From the step that it goes on from, where that is here.
        const from = steps.step[branch.at] === branch.from ?
            metric.at.indexOf(branch.at) : -1;
        const first = from < 0 ? [] : [from];
        series.push({...line, width: 1, dashes: [5, 3],
          label: `${shown(metric.name)} of ${shown(branch.name)}`,
          x: [...first.map(() => branch.from), ...theirs.step],
          y: [...first.map((at) => metric.value[at]), ...theirs.value]});
      }
    }
    if (series.length > 1) {
      figure.append(element("p", {class: "hint"}, "dashed: of branches"));
    }
    timeline.push(new StepChart(box, series,
        {label: `${shown(metric.name)} over the steps`}));
  });
  byId("no-metrics").hidden = run.metrics.length > 0;
  drawTold();
}

function saysOf(at) {
  const told = run.told.get(at);
  const says = [];
  const {nan, inf, bad} = run.steps;
  if (run.isBad(at)) {
    const what = [nan[at] && `${count(nan[at])} NaN`,
      inf[at] && `${count(inf[at])} Inf`].filter(Boolean).join(", ");
    says.push(element("span", {class: "badly"},
        `✕ ${what} in ${plural(bad[at], "leaf", "leaves")}`));
  }
  for (const metric of run.metrics) {
    const place = metric.at.indexOf(at);
    if (place >= 0 && !Number.isFinite(metric.value[place])) {
      says.push(element("span", {class: "badly"},
          `${shown(metric.name)} is ${number(metric.value[place])}`));
    }
  }
  if (told?.pinned) says.push("pinned");
  for (const branch of run.begun.get(at) ?? []) {
    says.push(`branch ${shown(branch.name)} goes on from step ` +
        `${branch.from}: ${plural(branch.steps, "step", "steps")}` +
        (branch.newest === null ? "" : `, newest ${branch.newest}`));
  }
  if (told?.note) says.push(`“${shown(told.note)}”`);
  return says.flatMap((what, index) => index ? [" · ", what] : [what]);
}

function drawTold() {
  const rows = [];
  for (let at = run.count - 1; at >= 0; --at) {
    if (run.told.has(at) || run.begun.has(at) || run.isBad(at)) rows.push(at);
  }
  toldRows ??= new Rows(byId("told"), byId("told-more"), [
    {title: "Step", sort: (at) => run.steps.step[at],
      cell: (at) => String(run.steps.step[at])},
    {title: "Tags", cell: (at) => shown((run.told.get(at)?.tags ?? [])
        .join(", "))},
    {title: "What", class: "wrap",
      cell: (at) => element("span", {}, ...saysOf(at))},
    {title: "New", number: true, sort: (at) => run.steps.new[at],
      cell: (at) => size(run.steps.new[at])},
    {title: "Committed (UTC)", cell: (at) => time(run.steps.time[at])},
  ], {page: 12, rowClass: (at) => run.isBad(at) ? "bad" : false});
  toldRows.set(rows);
  byId("no-told").hidden = rows.length > 0;
}

function drawHead() {
  const {store, steps} = run;
  byId("name").textContent = shown(store.name);
  document.title = `${shown(store.name)} · ckptree`;
  const last = run.count - 1;
  const elements = run.grid.names.reduce((sum, _, leaf) => {
    const column = run.columns - 1;
    return run.grid.value[run.cell(leaf, column)] ?
        sum + run.typeOf(leaf, column).count : sum;
  }, 0);
  fill(byId("facts"),
      ...fact("Branch", shown(store.branch)),
      ...fact("Steps", count(store.steps)),
      ...fact("Newest", String(steps.step[last])),
      ...fact("Committed (UTC)", time(steps.time[last])),
      ...fact("From first to last", run.count > 1 ?
          span(steps.time[last] - steps.time[0]) : ""),
      ...fact("Leaves", count(steps.leaves[last])),
      ...fact("Elements", count(elements)),
      ...fact("One step", size(steps.all[last])),
      ...fact("All steps", size(store.logical)),
      ...fact("On disk", size(store.disk)));
  const bad = [];
  for (let at = 0; at < run.count; ++at) if (run.isBad(at)) bad.push(at);
  fill(byId("alarms"), ...(bad.length ? [element("span", {class: "alarm"},
      `✕ NaN or Inf in ${plural(bad.length, "step", "steps")}, first in ` +
      `step ${String(steps.step[bad[0]])}` + (bad.at(-1) === last ?
          ", and in the newest" : ""))] : []));
  const thinned = run.columns < store.steps;
  byId("made").textContent = `Made ${store.made} by ${store.by}, from records` +
      (run.histograms.length ? " and the arrays of the histograms" :
                               " alone: no array was read") +
      `. ${thinned ? `Leaves are of ${count(run.columns)} of the ` +
      `${count(store.steps)} steps, those with tags, pins, NaN or Inf first.` :
      "Leaves are of every step."} Store ${store.uuid}.`;
}
