// The schedule as lanes: what runs when, predicted and measured, on each rank.

const phases = {
  forward: ["var(--forward)", "forward"],
  recompute: ["var(--recompute)", "forward again"],
  backward: ["var(--backward)", "backward"],
  update: ["var(--update)", "norm and update"],
  communication: ["var(--communication)", "sum over ranks"],
  waiting: ["var(--waiting)", "waiting for a sum"],
  beside: ["var(--kind-6)", "on another lane"],
  load: ["var(--load)", "load and others"],
};

// Of what a row shows: on a row of its own, a lane is one phase.
function phaseIn(row, i) {
  if (!row.lane) return phaseOf(row.program, i);
  return row.lane in laneRows ? "communication" : "beside";
}

function phaseOf(program, i) {
  const operation = program.operation[i];
  if (["forward", "forward-keep", "finish-forward"].includes(operation)) {
    return program.recompute[i] ? "recompute" : "forward";
  }
  return {
    backward: "backward",
    "backward-weight": "backward",
    "backward-input": "backward",
    "finish-backward": "backward",
    norm: "update",
    update: "update",
    "all-reduce": "communication",
    "reduce-scatter": "communication",
    "all-gather": "communication",
    "keep-shard": "update",
    wait: "waiting"
  }[operation] ||
      "load";
}

// Rows of the picture for lanes beside compute, predicted and measured; another lane has its name.
const laneRows = {
  collective: ["sums over ranks", "sums in flight at most"],
  message: ["messages", "messages in flight at most"],
};

function laneRow(lane, source) {
  const names = laneRows[lane] || [lane, `${lane} in flight at most`];
  return names[source === "measured" ? 1 : 0];
}

// As replay says: [from, to] by instruction on compute, where what runs beside it has an empty span,
// and by lane beside it.
function scheduleOf(program) {
  let now = 0;
  const compute = [];
  const beside = program.lanes.map(() => []);
  program.lane.forEach((lane, i) => {
    const span = [program.begin_seconds[i], program.end_seconds[i]];
    if (lane < 0) {
      compute.push(span);
      now = span[1];
    } else {
      beside[lane][i] = span;
      compute.push([now, now]);
    }
  });
  return {compute, beside};
}

// Measured is the time of each instruction on the computing thread; what runs beside it was in
// flight from its issue to the end of its wait at most.
function measuredScheduleOf(program, rank) {
  const from = starts(rank.measured_seconds);
  const compute = from.map((begin, i) => [begin, begin + rank.measured_seconds[i]]);
  const beside = program.lanes.map(() => []);
  program.operation.forEach((operation, i) => {
    if (operation !== "wait") return;
    const issued = program.completes[i];
    beside[program.lane[issued]][issued] = [compute[issued][0], compute[i][1]];
  });
  return {compute, beside};
}

function lanes() {
  const rows = [];
  const add = (name, program, rank, schedule, source) => {
    rows.push({name, program, rank, spans: schedule.compute, source});
    schedule.beside.forEach((spans, number) => {
      const lane = program.lanes[number];
      rows.push({name: `${name}, ${laneRow(lane, source)}`, program, rank, spans, lane, source});
    });
  };
  report.programs.forEach((program, number) => {
    const ranks = report.ranks.filter((rank) => rank.program === number);
    const name = report.programs.length > 1 ? `predicted, rank ${ranks[0].rank}` : "predicted";
    add(name, program, ranks[0], scheduleOf(program), "predicted");
  });
  for (const rank of report.ranks) {
    const program = report.programs[rank.program];
    add(report.ranks.length > 1 ? `measured, rank ${rank.rank}` : "measured", program, rank,
        measuredScheduleOf(program, rank), "measured");
  }
  return rows;
}

// What is in flight overlaps: each goes to the first track that is free.
function tracksOf(spans) {
  const ends = [];
  const track = [];
  spans.forEach((span, i) => {
    if (!span) return;
    let place = ends.findIndex((end) => end <= span[0] + 1e-12);
    if (place < 0) place = ends.push(0) - 1;
    ends[place] = span[1];
    track[i] = place;
  });
  return {track, count: Math.max(1, ends.length)};
}

function drawLane(row, plot, top, height) {
  const {track, count} = row.lane ? tracksOf(row.spans) : {track: [], count: 1};
  const paths = {};
  const size = height / count;
  let last = null;
  row.spans.forEach((span, i) => {
    if (!span || span[1] <= span[0]) return;
    const phase = phaseIn(row, i);
    const x = plot.x(span[0]);
    const width = plot.x(span[1]) - x;
    // Neighbours of one phase that are thinner than a pixel become one.
    if (last && !row.lane && last.phase === phase && width < 0.7 && x - last.end < 0.7) {
      last.end = x + width;
      last.rectangle[1] = last.end - last.rectangle[0];
      return;
    }
    const gap = width > 2.5 ? 0.6 : 0;
    const rectangle = [x, width - gap, top + (track[i] || 0) * size, size - (count > 1 ? 0.6 : 0)];
    (paths[phase] = paths[phase] || []).push(rectangle);
    last = {phase, end: x + width, rectangle};
  });
  return Object.entries(paths).map(([phase, rectangles]) => shape("path", {
    style: `fill: ${phases[phase][0]}`,
    d: rectangles
           .map(([x, width, y, tall]) => `M${x.toFixed(2)} ${y.toFixed(2)}h${
                    Math.max(width, 0.3).toFixed(2)}v${tall.toFixed(2)}H${x.toFixed(2)}z`)
           .join(""),
  }));
}

function drawSchedule() {
  const place = document.getElementById("schedule");
  if (report.programs.length === 0) {
    place.append(note(notEnded));
    return;
  }
  const rows = lanes();
  const known = report.programs.some((program) => program.seconds > 0);
  const used = new Set(rows.flatMap((row) => row.spans.map((span, i) => phaseIn(row, i))));
  const holder = element("div", {class: "plot"});
  place.append(note("Instructions in time, of the last step. " +
                   (known ? "" :
                            "The costs of this model were " +
                               "not measured, so the predicted times are estimates.")),
      legend(Object.entries(phases).filter(([phase]) => used.has(phase)).map(([, entry]) => entry)),
      element("div", {class: "scrolled"}, holder));
  const end = largest(rows.flatMap((row) => row.spans.map((span) => span[1])));
  const laneTop = (number) => 20 + number * 52;
  showPicture(holder, (width) => {
    const height = laneTop(rows.length) - 8 + 42;
    const plot = makePlot(width, height, {
      from: 0,
      to: end,
      unit: secondUnit(end),
      label: `time since the start of the step (${secondUnit(end)[0]})`
    },
        null, "Schedule of the step as lanes");
    rows.forEach((row, number) => {
      const top = laneTop(number);
      const took = row.lane ? "" : ` · ${secondsText(row.spans[row.spans.length - 1][1])}`;
      plot.svg.append(shape("text", {class: "strong", x: plot.left, y: top - 5}, row.name + took),
          shape("rect",
              {class: "lane", x: plot.left, y: top, width: plot.right - plot.left, height: 26}),
          ...drawLane(row, plot, top, 26));
    });
    onHover(plot.svg, (x, y) => {
      const row = rows.find((unused, number) => y >= laneTop(number) && y <= laneTop(number) + 26);
      if (!row || x < plot.left || x > plot.right) return null;
      const wanted = plot.valueAt(x);
      const found = row.spans.findIndex((span) => span && span[0] <= wanted && wanted < span[1]);
      if (found < 0) return null;
      return {
        title: instructionTitle(row.program, found),
        lines: [...instructionLines(row.program, row.rank, found), row.name]
      };
    });
    return plot.svg;
  });
}
