// Head of the page: what was run, what it took, and the memory at the planned peak.

function tile(name, value, ...more) {
  return element("div", {class: "tile"}, element("div", {class: "name"}, name),
      element("div", {class: "value"}, value),
      more.map((line) => element("div", {class: "more"}, line)));
}

const memoryColours = {
  parameters: "var(--kind-0)",
  optimizer: "var(--kind-1)",
  gradients: "var(--kind-2)",
  activations: "var(--kind-3)",
  communication: "var(--kind-6)",
  transients: "var(--kind-7)",
  libraries: "var(--kind-5)",
};

function memoryTable(memory) {
  const row = (name, colour, total) => element("tr", {class: total ? "total" : ""},
      element("th", {scope: "row"}, colour ? swatch(colour) : null, name),
      element("td", {class: "number"}, bytesText(memory[name])),
      element("td", {class: "number"}, percentText(memory[name] / memory.budget)));
  // A tier below the device: its peak, in its own budget where it has one.
  const below = (tier, [peak, budget]) => element("tr", {class: "total"},
      element("th", {scope: "row"}, budget ? `${tier}, of ${bytesText(budget)}` : tier),
      element("td", {class: "number"}, bytesText(peak)),
      element("td", {class: "number"}, percentText(peak / (budget || peak))));
  return element("table", {}, element("caption", {}, "Memory of a rank at the planned peak"),
      element("tbody", {},
          Object.entries(memoryColours)
              .filter(([name]) => name in memory)
              .map(([name, colour]) => row(name, colour, false)),
          row("peak", null, true), row("free", null, false), row("budget", null, true),
          Object.entries(memory.below || {}).map(([tier, held]) => below(tier, held))));
}

// Bytes, or "auto" of a run that has not come to write what that was.
const budgetText = (budget) => Number.isFinite(Number(budget)) ? bytesText(Number(budget)) : budget;

function factsTable() {
  const config = report.config;
  const summary = report.summary;
  const text = summary.item === "token";
  const program = report.programs[0];
  const plural = (count, name) => `${count} ${name}${
      count === 1            ? "" :
          name.endsWith("h") ? "es" :
                               "s"}`;
  const rows = [
    [
      "grid",
      `data ${config["grid.data"]} × pipeline ${config["grid.pipeline"]} × tensor ` +
          config["grid.tensor"]
    ],
    ["threads a rank", String(summary.threads)],
    ...(summary.gpu ? [["GPU", summary.gpu]] : []),
    [
      "a step",
      plural(Number(config["train.global_batch"]), "sample") +
          (text ? ` of ${config["model.sequence"]} tokens` : "")
    ],
    [
      "on each rank",
      `${plural(summary.micro_batches, "micro-batch")} of ` +
          plural(Number(config["train.micro_batch"]), "sample")
    ],
    [
      "precision",
      config["train.precision"] +
          (config["train.products"] === "tf32" ? ", products in TF32" : "")
    ],
    ["plan", program ? program.name : config["memory.plan"]],
    ["budget", budgetText(program ? program.budget_bytes : config["memory.budget"])],
    [
      "costs",
      report.costs === "measured"     ? "measured on the run's machine" :
          report.costs === "declared" ? "declared by the model" :
                                        "not known"
    ],
    ["data", config["data.path"] || "none"],
  ];
  return element("table", {}, element("caption", {}, "Run"),
      element("tbody", {},
          rows.map(([name, value]) => element("tr", {}, element("th", {scope: "row"}, name),
                       element("td", {style: "overflow-wrap: anywhere"}, value)))));
}

// Where the time went, as far as the rows of the run say.
function timeTable() {
  const time = report.time;
  const all = time.step_seconds + time.checkpoint_seconds + time.validation_seconds +
      time.between_seconds + time.start_seconds + time.lost_seconds;
  const rows = [
    ["steps", time.step_seconds - time.data_seconds],
    ["waiting for data", time.data_seconds],
    ["checkpoints, but for the last of each start", time.checkpoint_seconds],
    ["validations", time.validation_seconds],
    ["between steps: records, lock, ranks that meet", time.between_seconds],
    [time.starts === 1 ? "1 start" : `${time.starts} starts`, time.start_seconds],
    [`${time.lost_steps} steps done again`, time.lost_seconds],
  ];
  const missing = time.missing_steps === 0 ? "" :
      `, without ${time.missing_steps} steps whose rows metrics.jsonl lacks`;
  return element("table", {}, element("caption", {}, `Time of the run${missing}`),
      element("tbody", {},
          rows.map(([name, seconds]) => element("tr", {}, element("th", {scope: "row"}, name),
                       element("td", {class: "number"}, secondsText(seconds)),
                       element("td", {class: "number"}, percentText(seconds / all))))));
}

// Ranks that took longer for their own work than the others of their stage, when they were named.
function slowRanksTable() {
  const slow = report.time.slow_ranks;
  if (slow.length === 0) return null;
  return element("table", {}, element("caption", {}, "Slow ranks"),
      element("tbody", {},
          slow.map((one) => element("tr", {}, element("th", {scope: "row"}, one.place),
                       element("td", {class: "number"}, `${one.times.toFixed(2)} times the others`),
                       element("td", {class: "number"}, `until step ${one.step}`)))));
}

function utilisationTable() {
  const used = report.utilisation;
  if (!used) return null;
  const giga = (operations) => `${(operations / 1e9).toPrecision(4)} GFLOP`;
  const rows = [
    ["model, a step", giga(used.model_operations)],
    ["with what runs again", used.hardware_operations === null ? "not known" : giga(used.hardware_operations)],
    ["model, a second of a rank", giga(used.model_operations_per_second)],
  ];
  if (used.model_utilisation !== null) {
    rows.push(["a device at most, a second", giga(used.peak_operations_per_second)],
        ["model FLOP utilisation", percentText(used.model_utilisation)]);
    if (used.hardware_utilisation !== null)
      rows.push(["hardware FLOP utilisation", percentText(used.hardware_utilisation)]);
  }
  return element("table", {}, element("caption", {}, "Operations"),
      element("tbody", {},
          rows.map(([name, value]) => element("tr", {}, element("th", {scope: "row"}, name),
                       element("td", {class: "number"}, value)))));
}

function drawSummary() {
  const config = report.config;
  const summary = report.summary;
  const program = report.programs[0];
  document.title = "Garonne report: " + report.run;
  document.getElementById("run").textContent = report.run;
  const sizes = `${config["model.layers"]} layers, hidden ${config["model.hidden"]}`;
  document.getElementById("model").textContent = `${config["model.kind"].toUpperCase()}, ` +
      (summary.item === "token" ?
              `${sizes}, ${config["model.heads"]} heads, sequence ${config["model.sequence"]}` :
              report.sizes || sizes) +
      (report.parameters === null ? "" :
                                    ` · ${(report.parameters / 1e6).toFixed(2)} M parameters`) +
      ` · ${summary.ranks} rank${summary.ranks === 1 ? "" : "s"}`;
  const gap =
      program && program.seconds > 0 ? summary.measured_seconds / program.seconds - 1 : null;
  const tiles = element("div", {class: "tiles"},
      tile("peak, measured", bytesText(summary.measured_peak_bytes),
          `planned ${bytesText(summary.planned_peak_bytes)}`,
          `${percentText(summary.measured_peak_bytes / summary.planned_peak_bytes)} of the plan`),
      tile("a step, measured", secondsText(summary.measured_seconds),
          gap === null ? "median" : `planned ${secondsText(program.seconds)}`,
          (gap === null ?
               "" :
               `${percentText(Math.abs(gap))} ${gap < 0 ? "below" : "above"} the plan, median; `) +
              `${secondsText(summary.data_seconds)} waiting for data`),
      tile(`${summary.item}s a second`, Math.round(summary.items_per_second).toLocaleString("en"),
          "median of all steps", `over ${summary.ranks} rank${summary.ranks === 1 ? "" : "s"}`),
      tile("loss", summary.last_loss.toFixed(4) + (summary.item === "token" ? " nats" : ""),
          `step ${summary.steps} of ${summary.wanted_steps}, first ${
              summary.first_loss.toFixed(4)}`,
          summary.last_validation_loss === null ?
              null :
              `validation ${summary.last_validation_loss.toFixed(4)}`));
  document.getElementById("summary").append(tiles,
      element("div", {class: "columns"},
          report.memory ? memoryTable(report.memory) : note(notEnded), factsTable()),
      element("div", {class: "columns"}, timeTable(), utilisationTable(),
          slowRanksTable()));
  document.getElementById("footer").textContent =
      `garonne ${report.garonne} · bytes are those of allocations; 1 MiB = 1,048,576 bytes`;
}
