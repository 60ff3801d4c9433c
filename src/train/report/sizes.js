// Memory over the size of a micro-batch and, of text, the length of sequences, with the edge of the
// budget.

function cellName(cell) {
  return `batch ${cell.batch}` + (cell.sequence === null ? "" : `, sequence ${cell.sequence}`);
}

function cellTooltip(cell, budget) {
  return {
    title: cellName(cell),
    lines: [cell.fastest_peak_bytes <= budget ? "fits without recomputation" :
          cell.fits                           ? "fits with recomputation" :
                                                "no plan fits"],
    rows: [
      ["smallest budget", bytesText(cell.minimum_budget_bytes)],
      ["fastest plan, no limit", bytesText(cell.fastest_peak_bytes)],
      ...(cell.fastest_seconds === null ? [] :
                                          [["a step by it", secondsText(cell.fastest_seconds)]]),
      ["costs", cell.costs],
    ],
  };
}

function sizesTable(sweep, key) {
  const at = (row, column) => sweep.cells[row * sweep.sequences.length + column];
  const values = sweep.cells.map((cell) => cell[key]);
  const least = Math.log(smallest(values));
  const most = Math.log(largest(values));
  const within = (cell) => cell[key] <= sweep.budget_bytes;
  const body = sweep.batches.map(
      (batch, row) => element("tr", {},
          element("th", {scope: "row", class: batch === sweep.configured.batch ? "own" : ""},
              String(batch)),
          sweep.sequences.map((sequence, column) => {
            const cell = at(row, column);
            const level = (Math.log(cell[key]) - least) / (most - least || 1);
            const [unit, size] = byteUnit(cell[key]);
            const edge = (side, other) => other && within(other) !== within(cell) ?
                element("span", {class: "edge " + side}) :
                null;
            const own = batch === sweep.configured.batch && sequence === sweep.configured.sequence;
            const content = cellTooltip(cell, sweep.budget_bytes);
            const data = element("td", {
              class: (level > 0.67 ? "deep" : "") + (own ? " own" : ""),
              tabindex: "0",
              style: `--level: ${(100 * level).toFixed(1)}%`,
              "aria-label": `${cellName(cell)}: ${bytesText(cell[key])}, ` + content.lines[0],
            },
                element("span", {class: "amount"}, shortNumber(cell[key] / size)),
                element("span", {class: "unit"}, unit + (within(cell) ? "" : " ✕")),
                edge("right", column + 1 < sweep.sequences.length ? at(row, column + 1) : null),
                edge("below", row + 1 < sweep.batches.length ? at(row + 1, column) : null));
            data.addEventListener(
                "pointermove", (event) => showTooltip(content, event.clientX, event.clientY));
            data.addEventListener("pointerleave", hideTooltip);
            data.addEventListener("focus", () => {
              const box = data.getBoundingClientRect();
              showTooltip(content, box.right - 10, box.bottom - 10);
            });
            data.addEventListener("blur", hideTooltip);
            return data;
          })));
  const lengths = sweep.configured.sequence !== null;
  return element("table", {class: "sizes"},
      element("thead", {},
          lengths ? element("tr", {}, element("th", {class: "corner"}),
                        element("th", {colspan: sweep.sequences.length}, "sequence (tokens)")) :
                    null,
          element("tr", {}, element("th", {class: "corner", scope: "col"}, "batch (samples)"),
              sweep.sequences.map(
                  (sequence) => element("th",
                      {scope: "col", class: sequence === sweep.configured.sequence ? "own" : ""},
                      lengths ? String(sequence) : "bytes")))),
      element("tbody", {}, body));
}

function drawSizes() {
  const place = document.getElementById("sizes");
  const sweep = report.sweep;
  if (sweep === null) {
    place.append(
        note("Not drawn: the vocabulary of the model, or the budget of the run, is not known " +
            "here before it has written a checkpoint and its Programs."));
    return;
  }
  const lengths = sweep.configured.sequence !== null;
  if (!lengths) document.getElementById("sizes-title").textContent = "Memory over batch size";
  const sizes = "by samples that go through the model at once" +
      (lengths ? " and tokens of a sample." : ".");
  const texts = {
    minimum_budget_bytes: "Smallest budget of a rank at which a plan exists, " + sizes,
    fastest_peak_bytes:
        "Peak of the fastest plan of a rank, as it would be without a limit, " + sizes,
  };
  const holder = element("div", {});
  const explanation = note("");
  const show = (key) => {
    explanation.textContent = texts[key];
    hideTooltip();
    holder.replaceChildren(sizesTable(sweep, key));
  };
  const measured = sweep.cells.filter((cell) => cell.costs === "measured").length;
  place.append(explanation,
      element("div", {class: "controls"},
          choice("bytes",
              [["minimum_budget_bytes", "smallest budget"], ["fastest_peak_bytes", "fastest plan"]],
              "minimum_budget_bytes", show)),
      legend([
        ["var(--limit)", `budget of ${bytesText(sweep.budget_bytes)}; ✕ = beyond it`, "line"],
        ["var(--quiet)", "this run", "dashed"]
      ]),
      holder,
      note(`Scratch memory is measured in ${measured} of ${
               sweep.cells.length} cells and the bound that ` +
          "the model declares in the others."));
  show("minimum_budget_bytes");
}
