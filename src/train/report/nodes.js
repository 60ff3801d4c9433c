// Table of nodes: equal places of the layers together, each one opened on request.

// "layer.3.down" and "layer.1.down" have the same place in their layers.
const placeInLayer = (name) => name.replace(/\.\d+\./, ".*.");

const nodeCounts = ["forwards", "recomputations", "backwards"];
const nodeSums = [
  "forward_seconds", "backward_seconds", "measured_forward_seconds", "measured_backward_seconds"
];

function nodeGroups() {
  const groups = new Map();
  for (const node of report.nodes) {
    const key = placeInLayer(node.node) + "\n" + node.kind;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(node);
  }
  return [...groups.values()].map((members) => {
    const total = {node: placeInLayer(members[0].node), kind: members[0].kind, members};
    for (const key of [...nodeCounts, ...nodeSums])
      total[key] = sum(members.map((node) => node[key]));
    for (const key of ["output_bytes", "record_bytes", "transient_bytes"]) {
      total[key] = largest(members.map((node) => node[key]));
    }
    return total;
  });
}

function nodeCells(node, whole) {
  const share = (node.measured_forward_seconds + node.measured_backward_seconds) / (whole || 1);
  const number = (text) => element("td", {class: "number"}, text);
  return [
    element("td", {}, node.kind),
    number(String(node.members ? node.members.length : 1)),
    number(String(node.forwards)),
    number(String(node.recomputations)),
    number(secondsText(node.forward_seconds)),
    number(secondsText(node.measured_forward_seconds)),
    number(secondsText(node.backward_seconds)),
    number(secondsText(node.measured_backward_seconds)),
    number(bytesText(node.output_bytes)),
    number(bytesText(node.record_bytes)),
    number(bytesText(node.transient_bytes)),
    element("td", {class: "number"}, percentText(share) + " ",
        element("span", {class: "share"},
            element("i", {style: `width: ${(100 * share).toFixed(1)}%`}))),
  ];
}

function nodeRows(group, whole) {
  if (group.members.length === 1) {
    return [element("tr", {},
        element("th", {scope: "row"}, element("span", {class: "single"}, group.members[0].node)),
        ...nodeCells(group, whole))];
  }
  const members =
      group.members.map((node) => element("tr", {class: "member", hidden: true},
                            element("th", {scope: "row"}, node.node), ...nodeCells(node, whole)));
  const button =
      element("button", {class: "expand", type: "button", "aria-expanded": "false"}, group.node);
  button.addEventListener("click", () => {
    const opened = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(opened));
    for (const row of members) row.hidden = !opened;
  });
  return [
    element("tr", {}, element("th", {scope: "row"}, button), ...nodeCells(group, whole)), ...members
  ];
}

function drawNodes() {
  const place = document.getElementById("nodes");
  if (report.nodes.length === 0) {
    place.append(note(notEnded));
    return;
  }
  const whole = sum(
      report.nodes.map((node) => node.measured_forward_seconds + node.measured_backward_seconds));
  const heading = (text, attributes) =>
      element("th", {class: "number", scope: "col", ...attributes}, text);
  place.append(
      note(
          "All runs of each node in the last step of rank 0, all micro-batches together. Bytes " +
          "are those of one run; of several nodes, the largest."),
      element("div",
          {class: "wide", tabindex: "0", role: "region", "aria-labelledby": "nodes-title"},
          element("table", {class: "nodes"},
              element("thead", {},
                  element("tr", {},
                      element("th", {scope: "col", class: "first", rowspan: 2}, "node"),
                      element("th", {scope: "col", rowspan: 2}, "kind"),
                      heading("nodes", {rowspan: 2}),
                      heading("forward runs", {colspan: 2, class: "span"}),
                      heading("forward", {colspan: 2, class: "span"}),
                      heading("backward", {colspan: 2, class: "span"}),
                      heading("output", {rowspan: 2}), heading("own record", {rowspan: 2}),
                      heading("scratch", {rowspan: 2}), heading("share of measured", {rowspan: 2})),
                  element("tr", {}, heading("all"), heading("again"), heading("predicted"),
                      heading("measured"), heading("predicted"), heading("measured"))),
              element("tbody", {}, nodeGroups().flatMap((group) => nodeRows(group, whole))))));
}
