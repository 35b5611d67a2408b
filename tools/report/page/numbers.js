// SPDX-License-Identifier: Apache-2.0
// The data of the page: see README.md of tools/report for what is in it.

// Bytes of base64 text.
function bytesOf(text) {
  const chars = atob(text);
  const bytes = new Uint8Array(chars.length);
  for (let i = 0; i < chars.length; ++i) bytes[i] = chars.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(
      new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers that are written as distances, zigzag, seven bits to a byte.
function integersAt(bytes, base, column) {
  const values = new Float64Array(column.n);
  let at = base + column.at;
  let value = 0;
  for (let i = 0; i < column.n; ++i) {
    let rest = 0;
    let scale = 1;
    let byte;
    do {
      byte = bytes[at++];
      rest += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    value += rest % 2 ? -(rest + 1) / 2 : rest / 2;
    values[i] = value;
  }
  return values;
}

// The same of float32 without its lowest `cut` bits.
function floatsAt(bytes, base, column) {
  const integers = integersAt(bytes, base, column);
  const bits = new Uint32Array(column.n);
  const scale = 2 ** column.cut;
  for (let i = 0; i < column.n; ++i) {
    const size = Math.abs(integers[i]) * scale;
    bits[i] = integers[i] < 0 ? size + 0x80000000 : size;
  }
  return new Float32Array(bits.buffer);
}

// The run, as everything else here sees it. Every column becomes an array.
async function readRun(packed) {
  const bytes = await inflate(packed);
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const run = JSON.parse(
      new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const base = 4 + length;
  const unpack = (object) => {
    for (const [name, value] of Object.entries(object)) {
      if (value && typeof value === "object" && "n" in value) {
        object[name] = "cut" in value ? floatsAt(bytes, base, value) :
                                        integersAt(bytes, base, value);
      }
    }
  };
  unpack(run.steps);
  unpack(run.grid);
  run.metrics.forEach(unpack);
  run.branches.forEach((branch) => branch.metrics.forEach(unpack));
  run.histograms.forEach(unpack);
  return new Run(run);
}

// One run: the steps, the leaves, and the leaves in some of the steps.
class Run {
  constructor(read) {
    Object.assign(this, read);
    this.count = this.steps.step.length;
    this.columns = this.grid.at.length;
    this.told = new Map(this.steps.told.map((told) => [told.at, told]));
    this.begun = new Map();  // The branches that begin at a step.
    for (const branch of this.branches) {
      this.begun.set(branch.at, [...this.begun.get(branch.at) ?? [], branch]);
    }
    this.named = this.steps.step.map((_, at) => at).filter(
        (at) => this.namesAt(at).length > 0);
    this.histogramOf = new Map(this.histograms.map((one) => [one.name, one]));
    this.parts = this.grid.names.map(partsOf);
    // The order in which leaves are shown.
    this.order = this.grid.names.map((_, leaf) => leaf).sort(
        (a, b) => natural(this.grid.names[a], this.grid.names[b]));
    this.lower = this.grid.names.map((name) => name.toLowerCase());
  }

  // The number of the step that a column of the grid is of.
  stepOf(column) { return this.steps.step[this.grid.at[column]]; }

  cell(leaf, column) { return leaf * this.columns + column; }

  typeOf(leaf, column) {
    return this.grid.types[this.grid.type[this.cell(leaf, column)]];
  }

  // The tags of a step, and the branches that begin there.
  namesAt(at) {
    return [...this.told.get(at)?.tags ?? [],
      ...(this.begun.get(at) ?? []).map(({name}) => `→ ${name}`)];
  }

  isBad(at) { return this.steps.nan[at] > 0 || this.steps.inf[at] > 0; }

  // The newest column in which the leaf is; -1: none.
  newest(leaf) {
    for (let c = this.columns - 1; c >= 0; --c) {
      if (this.grid.value[this.cell(leaf, c)]) return c;
    }
    return -1;
  }

  // How often the leaf became another from one column to the next.
  changesOf(leaf) {
    let changes = 0;
    for (let c = 1; c < this.columns; ++c) {
      const at = this.cell(leaf, c);
      if (this.grid.value[at] !== this.grid.value[at - 1]) ++changes;
    }
    return changes;
  }

  badCells(leaf) {
    let bad = 0;
    for (let c = 0; c < this.columns; ++c) {
      const at = this.cell(leaf, c);
      if (this.grid.nan[at] || this.grid.inf[at]) ++bad;
    }
    return bad;
  }

  // |change of L2| / L2 since the column before: no update was smaller, in
  // proportion. NaN where one of the two is not known.
  changeOf(leaf, column) {
    if (column === 0) return NaN;
    const at = this.cell(leaf, column);
    const now = this.grid.l2[at];
    const before = this.grid.l2[at - 1];
    if (now === before) return now === now ? 0 : NaN;
    return Math.abs(now - before) / now;
  }
}

// "a/"b/c"/d" has three parts; a quoted part may hold a slash.
function partsOf(name) {
  const parts = [];
  let part = "";
  let quoted = false;
  for (let i = 0; i < name.length; ++i) {
    const char = name[i];
    if (char === "\\" && quoted) {
      part += char + (name[++i] ?? "");
      continue;
    }
    if (char === '"') quoted = !quoted;
    if (char === "/" && !quoted) {
      parts.push(part);
      part = "";
    } else {
      part += char;
    }
  }
  parts.push(part);
  return parts;
}
