// SPDX-License-Identifier: Apache-2.0
// Where the bytes of the newest step are.

function costTree() {
  const root = {name: "", leaves: 0, bytes: 0, alone: 0, below: new Map()};
  for (const one of run.subtrees) {
    let node = root;
    for (const part of one.name === "" ? [] : partsOf(one.name)) {
      add(node, one);
      if (!node.below.has(part)) {
        node.below.set(part, {name: part, leaves: 0, bytes: 0, alone: 0,
          below: new Map()});
      }
      node = node.below.get(part);
    }
    add(node, one);
  }
  return root;
  function add(node, one) {
    node.leaves += one.leaves;
    node.bytes += one.bytes;
    node.alone += one.alone;
  }
}

function costRow(name, node, most, depth) {
  const inner = element("div");
  inner.style.width = `${most ? node.bytes / most * 100 : 0}%`;
  const title = element("span", {class: "name"}, name);
  title.style.paddingLeft = `${depth * 0.9}rem`;
  return element("div", {class: "row"}, title,
      element("div", {class: "bar"}, inner),
      element("span", {class: "number"}, size(node.bytes)),
      element("span", {class: "number"}, size(node.alone)),
      element("span", {class: "number leaf-count"},
          plural(node.leaves, "leaf", "leaves")));
}

function costNodes(node, most, depth) {
  return [...node.below.values()].sort((a, b) => b.bytes - a.bytes ||
      natural(a.name, b.name))
      .map((below) => {
        const row = costRow(shown(below.name), below, most, depth);
        if (below.below.size === 0) {
          return element("div", {class: "last"}, row);
        }
        const details = element("details", {open: depth < 1},
            element("summary", {}, row));
        let filled = false;
        const open = () => {
          if (filled) return;
          filled = true;
          details.append(element("div", {},
              ...costNodes(below, most, depth + 1)));
        };
        if (depth < 1) open();
        details.addEventListener("toggle", open);
        return details;
      });
}

function drawCosts() {
  const tree = costTree();
  const step = run.steps.step[run.count - 1];
  byId("cost-hint").textContent = tree.bytes === 0 ?
      "The newest step holds nothing." :
      `Of step ${String(step)}: ${size(tree.bytes)} in ` +
      `${plural(tree.leaves, "leaf", "leaves")}. ALONE is what goes with ` +
      "this step alone; steps share the rest.";
  fill(byId("cost-tree"), element("div", {class: "row head"},
      element("span", {}, "Subtree"), element("span"),
      element("span", {class: "number"}, "Size"),
      element("span", {class: "number"}, "Alone"),
      element("span", {class: "number leaf-count"}, "Leaves")),
  ...costNodes(tree, tree.bytes, 0));
}
