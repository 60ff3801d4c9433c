// Live bytes over the step, stacked by kind, predicted and measured.

const kindColours = Array.from({length: 8}, (unused, kind) => `var(--kind-${kind})`);

// Bytes by kind during each instruction: [kind][instruction]. The executor stops where a buffer has
// other bytes than planned, so what was measured differs only beside the buffers.
function stackOf(program, rank, source) {
  if (source === "predicted") return program.bytes;
  const buffers = program.bytes.slice(0, -1);
  const others = rank.measured_peak_bytes.map(
      (peak, i) => Math.max(0, peak - sum(buffers.map((kind) => kind[i]))));
  return [...buffers, others];
}

// Begin and end of each instruction on the axis.
function spans(program, rank, axis, source) {
  const durations = axis === "instruction" ? program.operation.map(() => 1) :
      source === "predicted" ? scheduleOf(program).compute.map(([from, to]) => to - from) :
                               rank.measured_seconds;
  const from = starts(durations);
  return {from, to: from.map((begin, i) => begin + durations[i])};
}

// With more instructions than pixels, of those that share a column the largest stands for all.
function columns(from, to, totals, plot) {
  const shown = [];
  let column = -1;
  for (let i = 0; i < from.length; ++i) {
    const at = Math.floor(plot.x(from[i]) * 2);
    if (from.length > 2000 && at === column) {
      const last = shown[shown.length - 1];
      last.to = to[i];
      if (totals[i] > totals[last.index]) last.index = i;
    } else {
      shown.push({from: from[i], to: to[i], index: i});
      column = at;
    }
  }
  return shown;
}

function stepPath(shown, values, plot) {
  return shown
      .map(({from, to, index}) => {
        const at = plot.y(values[index]).toFixed(2);
        return `L${plot.x(from).toFixed(2)} ${at}L${plot.x(to).toFixed(2)} ${at}`;
      })
      .join("");
}

function instructionTitle(program, i) {
  return `${program.operation[i]} ${program.node_names[program.node[i]]}`;
}

function instructionLines(program, rank, i) {
  const lines = [`instruction ${i}` +
    (program.micro_batch[i] >= 0 ? `, micro-batch ${program.micro_batch[i]}` : "") +
    (program.recompute[i] ? ", run again" : "")];
  lines.push(`predicted ${secondsText(program.instruction_seconds[i])}, measured ` +
      secondsText(rank.measured_seconds[i]));
  return lines;
}

function peakPlace(program) {
  const at = program.peak_instruction;
  if (at < 0) return "at the start of the step";
  const microBatch = program.micro_batch[at];
  return `at instruction ${at}, ${instructionTitle(program, at)}` +
      (microBatch < 0 ? "" : ` (micro-batch ${microBatch})`) + ", marked ▾";
}

// Kinds that hold nothing at all have no area.
function drawStack(plot, shown, stack) {
  const backwards = [...shown].reverse().map(({from, to, index}) => ({from: to, to: from, index}));
  let lower = stack[0].map(() => 0);
  stack.forEach((kind, number) => {
    const below = lower;
    const upper = kind.map((bytes, i) => bytes + below[i]);
    lower = upper;
    if (largest(kind) === 0) return;
    const path = stepPath(shown, upper, plot) + stepPath(backwards, below, plot);
    plot.svg.append(
        shape("path", {style: `fill: ${kindColours[number]}`, d: "M" + path.slice(1) + "Z"}));
  });
}

// What a Program plans to have in a tier below the device, in the colours of the device's picture.
function tierPicture(program, tier, held) {
  const holder = element("div", {class: "plot"});
  const totals = program.operation.map((unused, i) => sum(held.bytes.map((kind) => kind[i])));
  const from = totals.map((unused, i) => i);
  const to = totals.map((unused, i) => i + 1);
  const top = held.peak_bytes * 1.04;
  showPicture(holder, (width) => {
    const plot = makePlot(width, 200,
        {from: 0, to: totals.length, whole: true, label: "instruction"},
        {from: 0, to: top, unit: byteUnit(top), label: `${tier}, predicted (${byteUnit(top)[0]})`},
        `Bytes of the ${tier} over the step, stacked by kind; peak ${bytesText(held.peak_bytes)}`);
    drawStack(plot, columns(from, to, totals, plot), held.bytes);
    followPointer(plot, 0, (at) => {
      const i = placeOf(from, at);
      const rows = [[tier, bytesText(totals[i])]];
      return {at, title: instructionTitle(program, i), rows};
    });
    return plot.svg;
  });
  return holder;
}

function drawLive() {
  const place = document.getElementById("live");
  if (report.programs.length === 0) {
    place.append(note(notEnded));
    return;
  }
  const view = {axis: "instruction", source: "predicted", rank: 0};
  const holder = element("div", {class: "plot"});
  const names = report.programs[0].kinds;
  const first = report.programs[report.ranks[0].program];
  place.append(
      note(
          "What is live while each instruction runs, its own scratch memory included. The stack " +
          "is one source, the line the total of the other."),
      element("div", {class: "controls"},
          choice("stack", [["predicted", "predicted"], ["measured", "measured"]], view.source,
              (value) => {
                view.source = value;
                redraw();
              }),
          choice("axis", [["instruction", "instructions"], ["time", "time"]], view.axis,
              (value) => {
                view.axis = value;
                redraw();
              }),
          report.ranks.length < 2 ?
              null :
              selection("rank", report.ranks.map((rank) => String(rank.rank)),
                  (number) => {
                    view.rank = number;
                    redraw();
                  })),
      legend([
        ...names.map((name, kind) => [kindColours[kind], name]),
        ["var(--text)", "total of the other source", "line"],
        ["var(--limit)", "budget (↑ = above the picture)", "dashed"]
      ]),
      holder,
      note(`Planned peak ${bytesText(first.peak_bytes)} ${peakPlace(first)}.`),
      ...Object.entries(first.below || {}).map(([tier, held]) => tierPicture(first, tier, held)));

  const redraw = showPicture(holder, (width) => {
    const rank = report.ranks[view.rank];
    const program = report.programs[rank.program];
    const stack = stackOf(program, rank, view.source);
    const totals = program.operation.map((unused, i) => sum(stack.map((kind) => kind[i])));
    const other = view.source === "predicted" ?
        rank.measured_peak_bytes :
        program.operation.map((unused, i) => sum(program.bytes.map((kind) => kind[i])));
    const {from, to} = spans(program, rank, view.axis, view.source);
    const most = Math.max(largest(totals), largest(other));
    const budgetShown = program.budget_bytes <= 1.7 * most;
    const top = (budgetShown ? Math.max(most, program.budget_bytes) : most) * 1.04;
    const end = to[to.length - 1];
    const plot = makePlot(width, width < 560 ? 300 : 380,
        view.axis === "instruction" ? {from: 0, to: end, whole: true, label: "instruction"} : {
          from: 0,
          to: end,
          unit: secondUnit(end),
          label: `${view.source} time since the start of the step (${secondUnit(end)[0]})`
        },
        {from: 0, to: top, unit: byteUnit(top), label: `live bytes (${byteUnit(top)[0]})`},
        `Live bytes over the step, ${view.source}, stacked by kind; peak ${
            bytesText(largest(totals))}, ` +
            `budget ${bytesText(program.budget_bytes)}`);
    const shown = columns(from, to, totals, plot);
    drawStack(plot, shown, stack);
    plot.svg.append(shape("path", {
      class: "outline" + (view.source === "measured" ? " dashed" : ""),
      d: "M" + stepPath(columns(from, to, other, plot), other, plot).slice(1),
    }));
    if (budgetShown) {
      const at = plot.y(program.budget_bytes);
      plot.svg.append(
          shape("line", {class: "limit-line", x1: plot.left, x2: plot.right, y1: at, y2: at}));
    }
    plot.svg.append(shape("text", {class: "limit", x: plot.right, y: 13, "text-anchor": "end"},
        `budget ${bytesText(program.budget_bytes)}` + (budgetShown ? "" : " ↑")));
    const peak = totals.indexOf(largest(totals));
    const peakAt = plot.x((from[peak] + to[peak]) / 2);
    const peakTop = plot.y(totals[peak]) - 2;
    plot.svg.append(shape("path", {
      d: `M${peakAt} ${peakTop}l-5 -8h10z`,
      style: "fill: var(--text)",
    }));
    followPointer(plot, 0, (at) => {
      const i = placeOf(from, at);
      return {
        at,
        title: instructionTitle(program, i),
        lines: instructionLines(program, rank, i),
        rows: [
          ["predicted", bytesText(sum(program.bytes.map((kind) => kind[i])))],
          ["measured", bytesText(rank.measured_peak_bytes[i])],
          ...names.map((name, kind) => [name, bytesText(stack[kind][i]), kindColours[kind]])
              .reverse()
              .filter((unused, row) => stack[names.length - 1 - row][i] > 0),
        ],
      };
    });
    return plot.svg;
  });
}
