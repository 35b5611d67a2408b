// SPDX-License-Identifier: Apache-2.0
// Charts over steps, by Chart.js. All of them show the same steps.

const charts = new Set();
let run = null;
let range = [0, 1];  // Numbers of steps, both shown.

// NaN, tags and branches, as lines across a chart.
const marks = {
  id: "marks",
  afterDatasetsDraw(chart) {
    if (!chart.options.plugins.marks.steps) return;
    const {ctx, chartArea: area, scales: {x}} = chart;
    const line = (step, stroke, dashes, width) => {
      const at = x.getPixelForValue(step);
      if (at < area.left - 1 || at > area.right + 1) return NaN;
      ctx.strokeStyle = stroke;
      ctx.lineWidth = width;
      ctx.setLineDash(dashes);
      ctx.beginPath();
      ctx.moveTo(at, area.top);
      ctx.lineTo(at, area.bottom);
      ctx.stroke();
      return at;
    };
    ctx.save();
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "top";
    let free = -Infinity;  // Where the next name of a tag fits.
    for (const place of chart.options.plugins.marks.names ? run.named : []) {
      const at = line(run.steps.step[place], color("tag"), [3, 3], 1);
      if (Number.isNaN(at)) continue;
      const text = clipped(shown(run.namesAt(place).join(", ")), 18);
      const width = ctx.measureText(text).width;
      const left = Math.min(at + 3, area.right - width);
      if (left < free) continue;
      ctx.setLineDash([]);
      ctx.fillStyle = color("card");
      ctx.globalAlpha = 0.75;
      ctx.fillRect(left - 1, area.top, width + 2, 13);
      ctx.globalAlpha = 1;
      ctx.fillStyle = color("tag");
      ctx.fillText(text, left, area.top + 1);
      free = left + width + 6;
    }
    for (let i = 0; i < run.count; ++i) {
      if (!run.isBad(i)) continue;
      const at = line(run.steps.step[i], color("bad"), [], 1.5);
      if (Number.isNaN(at)) continue;
      // A cross, for those who do not see the colour.
      ctx.setLineDash([]);
      ctx.lineWidth = 2;
      ctx.beginPath();
      for (const turn of [-1, 1]) {
        ctx.moveTo(at - 3.5, area.bottom - 5 - 3.5 * turn);
        ctx.lineTo(at + 3.5, area.bottom - 5 + 3.5 * turn);
      }
      ctx.stroke();
    }
    ctx.restore();
  },
};

function clipped(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// Bytes have ticks at whole numbers of their unit.
function byteTicks(most) {
  let unit = 1;
  while (most / unit >= 1024) unit *= 1024;
  const rough = Math.max(most / unit, 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const nice = [1, 2, 5, 10].find((n) => n * power >= rough) * power;
  return Math.max(nice * unit, 1);
}

// A chart of `series`: {label, color, x, y, fill, width, dashes, stepped}, in a
// box.
// Values that are no numbers are left out: marks show where.
class StepChart {
  constructor(box, series, options = {}) {
    Object.assign(this, {box, series, options});
    this.canvas = element("canvas", {
      role: "img", "aria-label": options.label ?? "",
    });
    fill(box, this.canvas);
    charts.add(this);
    this.draw();
    this.listen();
  }

  destroy() {
    this.chart.destroy();
    charts.delete(this);
  }

  datasets() {
    return this.series.map((one) => {
      const data = [];
      for (let i = 0; i < one.x.length; ++i) {
        if (Number.isFinite(one.y[i])) data.push({x: one.x[i], y: one.y[i]});
      }
      return {
        label: one.label, data, borderColor: color(one.color),
        backgroundColor: color(one.ground ?? one.color),
        borderWidth: one.width ?? 1.6, borderDash: one.dashes ?? [],
        fill: one.fill ?? false, stepped: one.stepped ?? false,
        // A lone step is a point.
        pointRadius: data.length < 2 ? 3 : data.length <= 60 ? 1.5 : 0,
        pointHitRadius: 8, pointHoverRadius: 4, tension: 0,
      };
    });
  }

  draw() {
    this.chart?.destroy();
    const {bytes, log, x = "step", marks: marked = true} = this.options;
    const text = color("faint");
    const format = bytes ? size : number;
    const ticks = {color: text, font: {size: 11}, maxTicksLimit: 6,
      callback: (value) => format(value)};
    if (bytes) {
      let most = 0;
      for (const one of this.series) {
        for (const value of one.y) if (value > most) most = value;
      }
      ticks.stepSize = byteTicks(most);
    }
    this.chart = new Chart(this.canvas, {
      type: "line",
      data: {datasets: this.datasets()},
      plugins: [marks],
      options: {
        animation: false, parsing: false, normalized: true, responsive: true,
        maintainAspectRatio: false, devicePixelRatio:
            printing ? 2 : devicePixelRatio,
        interaction: {mode: "nearest", axis: "x", intersect: false},
        scales: {
          x: {
            type: "linear", ...(x === "step" ? this.limits() : {}),
            ticks: {color: text, font: {size: 11}, maxRotation: 0,
              autoSkipPadding: 24, callback: (value) =>
                  x !== "step" ? number(value) :
                  Number.isInteger(value) ? String(value) : ""},
            grid: {color: color("grid")},
          },
          y: {
            type: log ? "logarithmic" : "linear",
            beginAtZero: Boolean(bytes || this.options.zero), ticks,
            grid: {color: color("grid")},
            afterFit: (axis) => { axis.width = Math.max(axis.width, 52); },
          },
        },
        plugins: {
          decimation: {enabled: x === "step", algorithm: "min-max"},
          legend: {display: false},
          marks: {steps: x === "step" && marked,
            names: Boolean(this.options.names)},
          tooltip: {
            animation: false, boxPadding: 4, callbacks: {
              title: (items) => items.length === 0 ? "" :
                  this.titleOf(items[0].parsed.x),
              label: (item) => ` ${item.dataset.label}: ` +
                  format(item.parsed.y),
            },
          },
        },
      },
    });
  }

  titleOf(value) {
    if (this.options.x) return number(value);
    const at = run.steps.step.indexOf(value);
    const parts = [`step ${value}`];
    if (at >= 0) {
      parts.push(time(run.steps.time[at]));
      const names = run.namesAt(at);
      if (names.length) parts.push(shown(names.join(", ")));
      if (run.isBad(at)) parts.push("NaN or Inf");
    }
    return parts.filter(Boolean).join(" · ");
  }

  limits() {
    // A run of one step has some room around it.
    return range[0] === range[1] ? {min: range[0] - 1, max: range[1] + 1} :
                                   {min: range[0], max: range[1]};
  }

  showRange() {
    if (this.options.x) return;
    Object.assign(this.chart.options.scales.x, this.limits());
    this.chart.update("none");
  }

  // Drawing over the chart chooses the steps.
  listen() {
    if (this.options.x) return;
    let from = null;
    const drawn = element("div", {class: "drawn", hidden: true});
    this.box.append(drawn);
    const within = (event) => {
      const {left, right} = this.chart.chartArea;
      const at = event.clientX - this.canvas.getBoundingClientRect().left;
      return Math.min(Math.max(at, left), right);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button !== 0) return;
      from = within(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const to = within(event);
      drawn.hidden = Math.abs(to - from) < 4;
      drawn.style.left = `${Math.min(from, to)}px`;
      drawn.style.width = `${Math.abs(to - from)}px`;
    });
    const end = (event) => {
      if (from === null) return;
      const ends = [from, within(event)].sort((a, b) => a - b)
          .map((at) => Math.round(this.chart.scales.x.getValueForPixel(at)));
      const far = !drawn.hidden;
      from = null;
      drawn.hidden = true;
      if (far && event.type === "pointerup" && ends[0] < ends[1]) {
        setRange(...ends);
      }
    };
    this.canvas.addEventListener("pointerup", end);
    this.canvas.addEventListener("pointercancel", end);
    this.canvas.addEventListener("dblclick", () => showAll());
  }
}

// A box with a title for one chart.
function figureOf(title, now = "") {
  const box = element("div", {class: "chart"});
  return {box, figure: element("figure", {}, element("figcaption", {},
      element("span", {}, title), element("span", {class: "now"}, now)), box)};
}

function keyOf(kind, text) {
  return element("span", {class: "key"},
      element("span", {class: `swatch ${kind}`}), text);
}
