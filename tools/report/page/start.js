// SPDX-License-Identifier: Apache-2.0
// From the data to the page, and from one state of the page to the next.

function redrawAll() {
  if (!run) return;
  for (const chart of charts) chart.draw();
  drawHeat();
  drawLeaf();
  leafRows.draw();
}

function setRange(first, last) {
  const {step} = run.steps;
  const ends = [step[0], step[run.count - 1]];
  if (!Number.isFinite(first)) first = ends[0];
  if (!Number.isFinite(last)) last = ends[1];
  range = [Math.max(Math.min(first, last), ends[0]),
    Math.min(Math.max(first, last), ends[1])];
  if (range[0] > range[1]) range = ends;
  byId("first").value = range[0];
  byId("last").value = range[1];
  for (const chart of charts) chart.showRange();
  showHeat();
}

function showAll() { setRange(NaN, NaN); }

// Shows `read`; the reader's choices stay.
function showRun(read) {
  const whole = !run || range[1] === run.steps.step[run.count - 1];
  const first = !run || range[0] === run.steps.step[0];
  const newest = run && byId("at").selectedIndex === 0;
  const before = run?.grid.names[chosen];
  run = read;
  const ends = [run.steps.step[0], run.steps.step[run.count - 1]];
  range = [first ? ends[0] : range[0], whole ? ends[1] : range[1]];
  byId("first").value = range[0];
  byId("last").value = range[1];
  const at = run.grid.names.indexOf(before);
  chosen = at >= 0 ? at : worthALook();
  drawHead();
  drawTimeline();
  newTable(newest);
  newHeat();
  drawLeaf();
  newDiff();
  drawCosts();
}

function trouble(text) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = text;
}

// Asks the server for what is newer, every two seconds.
async function follow(version) {
  const live = byId("live");
  live.hidden = false;
  for (;;) {
    await new Promise((wake) => setTimeout(wake, 2000));
    if (document.hidden) continue;
    try {
      const answer = await fetch(`version${location.search}`);
      if (!answer.ok) throw new Error(String(answer.status));
      const now = await answer.text();
      if (now !== version) {
        const data = await fetch(`data${location.search}`);
        if (!data.ok) throw new Error(String(data.status));
        showRun(await readRun(new Uint8Array(await data.arrayBuffer())));
      }
      version = now;
      live.textContent = "live";
      live.classList.remove("lost");
    } catch {
      live.textContent = "no answer";
      live.classList.add("lost");
    }
  }
}

async function start() {
  startTheme();
  startHeat();
  startLeaf();
  startTable();
  startDiff();
  for (const form of document.forms) {
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  const typed = () => setRange(
      ...["first", "last"].map((id) => byId(id).value.trim() === "" ? NaN :
          Number(byId(id).value)));
  byId("range").addEventListener("change", typed);
  byId("all").addEventListener("click", showAll);
  let waiting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => run && drawHeat());
  }).observe(byId("heat-box"));

  const [kind, text] = byId("data").textContent.split(" ");
  if (typeof DecompressionStream === "undefined") {
    trouble("This browser is too old for the page: it cannot inflate data.");
    return;
  }
  try {
    showRun(await readRun(bytesOf(text)));
  } catch (error) {
    trouble(`The data of this page cannot be read: ${error.message}`);
    throw error;
  }
  document.documentElement.dataset.ready = "true";
  if (kind.startsWith("live:")) follow(kind.slice(5));
}

start();
