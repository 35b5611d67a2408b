// SPDX-License-Identifier: Apache-2.0
// Elements and texts. What a store holds becomes text, never HTML.

const byId = (id) => document.getElementById(id);

// element("td", {class: "number"}, "text", otherElement)
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") {
      for (const [event, call] of Object.entries(value)) {
        made.addEventListener(event, call);
      }
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== false && value !== undefined) {
      made.setAttribute(name, value);
    }
  }
  made.append(...children);
  return made;
}

function fill(parent, ...children) {
  parent.replaceChildren(...children);
}

// Control characters, and marks that turn text around, are shown.
const HIDDEN = new RegExp("[\\u0000-\\u001f\\u007f-\\u009f\\u200e\\u200f" +
    "\\u2028-\\u202e\\u2066-\\u2069]", "g");

function shown(text) {
  return text.replace(HIDDEN, (char) =>
      "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0"));
}

// block_2 before block_10.
const natural = new Intl.Collator("en", {numeric: true}).compare;

const whole = new Intl.NumberFormat("en", {useGrouping: true});
const count = (number) => whole.format(number).replaceAll(",", "\u202f");

function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function size(bytes) {
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    ++unit;
  }
  const digits = unit === 0 || Math.abs(bytes) >= 100 ? 0 : 1;
  return `${bytes.toFixed(digits).replace(/\.0$/, "")} ${UNITS[unit]}`;
}

// Four digits, as the page keeps little more.
function number(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Inf" : "-Inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return count(value);
  if (size >= 1e5 || size < 1e-3) {
    return value.toExponential(2).replace("e+", "e");
  }
  return String(Number(value.toPrecision(4)));
}

// What is not known is no number.
const known = (value) => Number.isNaN(value) ? "" : number(value);

function percent(share) {
  if (Number.isNaN(share)) return "";
  if (share === 0) return "0 %";
  if (share < 1e-4) return "< 0.01 %";
  return `${Number((share * 100).toPrecision(3))} %`;
}

function time(milliseconds) {
  if (!milliseconds) return "";
  return new Date(milliseconds).toISOString().replace("T", " ").slice(0, 19);
}

function span(milliseconds) {
  const minutes = milliseconds / 60000;
  if (minutes < 2) return `${Math.round(milliseconds / 1000)} s`;
  if (minutes < 120) return `${Math.round(minutes)} min`;
  if (minutes < 72 * 60) return `${Math.round(minutes / 60)} h`;
  return `${Math.round(minutes / 1440)} days`;
}

// A pair of a list of facts; nothing where there is nothing to say.
function fact(name, ...value) {
  if (value.length === 1 && value[0] === "") return [];
  return [element("div", {}, element("dt", {}, name),
      element("dd", {}, ...value))];
}

// Rows of a table a hundred at a time. `columns`: {title, sort, cell, number}.
class Rows {
  constructor(table, more, columns, options) {
    Object.assign(this, {table, more, columns, ...options});
    this.limit = this.page = this.page ?? 100;
    this.sorted = this.sorted ?? -1;
    this.down = false;
    more.addEventListener("click", () => {
      this.limit += this.page * 4;
      this.draw();
    });
  }

  set(rows) {
    this.rows = rows;
    this.limit = this.page;
    this.draw();
  }

  sortBy(index) {
    this.down = this.sorted === index ? !this.down :
                                        Boolean(this.columns[index].number);
    this.sorted = index;
    this.draw();
    this.table.querySelectorAll("th button")[index]?.focus();
  }

  draw() {
    let rows = this.rows;
    if (this.sorted >= 0) {
      const key = this.columns[this.sorted].sort;
      const sign = this.down ? -1 : 1;
      const keyed = rows.map((row) => [key(row), row]);
      // What has no value stands last, whichever way.
      const none = (value) => value === undefined || Number.isNaN(value);
      keyed.sort(([a], [b]) => none(a) || none(b) ? none(a) - none(b) :
          a < b ? -sign : a > b ? sign : 0);
      rows = keyed.map(([, row]) => row);
    }
    const head = element("tr", {}, ...this.columns.map((column, index) => {
      const sorted = this.sorted === index;
      const order = sorted ? this.down ? "descending" : "ascending" : "none";
      return element(
          'th', {
            scope: 'col',
            class: column.number ? 'number' : column.class ?? false,
            'aria-sort': column.sort ? order : false,
          },
          column.sort ?
              element(
                  'button', {
                    type: 'button',
                    on: {click: () => this.sortBy(index)},
                  },
                  column.title + (sorted ? this.down ? ' ▼' : ' ▲' : '')) :
              column.title);
    }));
    const body = rows.slice(0, this.limit).map((row) => element("tr",
        {class: this.rowClass?.(row) ?? false},
        ...this.columns.map((column, index) => {
          const cell = column.cell(row);
          return element(index === 0 ? "th" : "td", {
            scope: index === 0 ? "row" : false,
            class: column.number ? "number" : column.class ?? false,
          }, cell ?? "");
        })));
    fill(this.table, element("thead", {}, head), element("tbody", {}, ...body));
    const hidden = rows.length - body.length;
    this.more.hidden = hidden <= 0;
    this.more.textContent = `Show more (${count(hidden)} are hidden)`;
    this.table.hidden = rows.length === 0;
  }
}
