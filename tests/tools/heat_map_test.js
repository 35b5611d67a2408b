// SPDX-License-Identifier: Apache-2.0
// The colours of the report"s heat map, on a run that is made up here.
//
//   node heat_map_test.js heat_map.js

"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const vm = require("node:vm");

// Two leaves of "base" in each of three steps, two of "lora" in all but the
// first. Nothing is a zero but the second element of lora/a in the last step.
const names = ["base/x", "base/y", "lora/a", "lora/b"];
const there = (leaf, column) => leaf < 2 || column > 0;
const cells = (of) => names.flatMap(
    (_, leaf) => [0, 1, 2].map(
        (column) => there(leaf, column) ? of(leaf, column) : NaN));
const numbers = cells((leaf, column) => leaf + column + 1);
const counts = (of) => cells(of).map((value) => value || 0);
const controls = {
  fold: {value: "1"},
  scale: {value: "row"},
  measure: {}
};
const context = vm.createContext({
  byId: (id) => controls[id],
  range: [1, 3],
  run: {
    order: [0, 1, 2, 3],
    columns: 3,
    lower: names,
    parts: names.map((name) => name.split("/")),
    cell: (leaf, column) => leaf * 3 + column,
    newest: () => 2,
    typeOf: (leaf, column) => ({count: there(leaf, column) ? 2 : 0}),
    stepOf: (column) => column + 1,
    changeOf: (leaf, column) =>
        column > 0 && there(leaf, column - 1) ? 0.5 : NaN,
    grid: {
      names,
      types: [],
      type: [],
      l2: numbers,
      std: numbers,
      min: numbers,
      max: numbers,
      value: counts((leaf, column) => 10 * leaf + column + 1),
      zero: counts((leaf, column) => leaf === 2 && column === 2 ? 1 : 0),
      nan: counts(() => 0),
      inf: counts(() => 0),
    },
  },
});
vm.runInContext(fs.readFileSync(process.argv[2], "utf8"), context);

for (const measure of vm.runInContext("Object.keys(MEASURES)", context)) {
  for (const scale of ["row", "all"]) {
    controls.measure.value = measure;
    controls.scale.value = scale;
    const [values, colors] = JSON.parse(vm.runInContext(
        `computeHeat();
        JSON.stringify([heat.values, heat.colors], (key, value) =>
            Number.isFinite(value) || typeof value !== "number" ?
                value : String(value))`,
        context));
    const which = `${measure} by ${scale}`;
    // What is not there has no value, and no colour.
    assert.strictEqual(values[1][0], "NaN", which);
    assert.strictEqual(colors[1][0], -1, which);
    for (const color of colors.flat()) {
      assert.ok(
          color === -1 || color >= 0 && color <= 1,
          `${which}: the colour ${color}`);
    }
  }
}
controls.measure.value = "zeros";
controls.scale.value = "row";
vm.runInContext("computeHeat()", context);
assert.deepStrictEqual(
    JSON.parse(vm.runInContext("JSON.stringify(heat.colors)", context)),
    [[0, 0, 0], [-1, 0, 1]]);
