// Seconds of a step against the budget: the planner's answer, and what single policies come to.

// Corners of each mark around (0, 0); an empty list is a circle.
const marks = [
  ["", "var(--kind-3)"],
  ["M-5 -5h10v10h-10z", "var(--recompute)"],
  ["M0 -6l5.6 10h-11.2z", "var(--backward)"],
  ["M0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z", "var(--update)"],
  ["M0 6l5.6 -10h-11.2z", "var(--limit)"],
  ["M-5 -2h3v-3h4v3h3v4h-3v3h-4v-3h-3z", "var(--kind-0)"],
  ["M-5.5 -2h11v4h-11z", "var(--kind-6)"],
  ["M-2 -5.5v11h4v-11z", "var(--kind-4)"],
  ["M-5 -3l2 -2l3 3l3 -3l2 2l-3 3l3 3l-2 2l-3 -3l-3 3l-2 -2l3 -3z", "var(--kind-1)"],
  ["M-5.5 0l2.7 -4.8h5.6l2.7 4.8l-2.7 4.8h-5.6z", "var(--kind-5)"],
];

function mark(number, x, y) {
  const [path, colour] = marks[number % marks.length];
  const style = `fill: ${colour}; stroke: var(--card)`;
  return path ? shape("path", {d: path, transform: `translate(${x} ${y})`, style}) :
                shape("circle", {cx: x, cy: y, r: 5, style});
}

function ownMark(x, y, measured) {
  return shape("path", {
    class: "own" + (measured ? " measured" : ""),
    d: "M0 -7l2 5h5l-4 3.2l1.6 5l-4.6 -3.1l-4.6 3.1l1.6 -5l-4 -3.2h5z",
    transform: `translate(${x} ${y})`
  });
}

function smallMark(draw, text) {
  return element("li", {},
      shape("svg", {width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true"}, draw),
      text);
}

const estimated = " The costs of this model were not measured: seconds are estimates by " +
    "operations and bytes, good for comparing plans and not as times.";

// Where plans may move something: those that leave it alone, and those that run nothing again.
const ways = [
  ["nothing moved", (name) => !name.includes(" + "), "var(--recompute)"],
  ["running nothing again", (name) => name.startsWith("keep-all"), "var(--update)"],
];

// Plans that move alike have one mark, whatever they run again.
function familyOf(name) {
  const moved = name.indexOf(" + ");
  return moved < 0 ? name : `any${name.slice(moved)}`;
}

// What plans reach, as a line that falls: one fits every budget from its own peak on, and the
// planner takes the best of what policies and solvers come to.
function reachedBy(given, least) {
  const plans = given.map((point) => ({
    bytes: Math.max(least, point.peak_bytes),
    seconds: point.seconds,
    plan: point.plan || point.name
  }));
  plans.sort((a, b) => a.bytes - b.bytes || a.seconds - b.seconds);
  const line = [];
  for (const plan of plans) {
    if (!line.length || plan.seconds < line[line.length - 1].seconds) line.push(plan);
  }
  return line;
}

function drawCurve() {
  const place = document.getElementById("curve");
  const curve = report.curve;
  if (curve === null) {
    place.append(
        note(report.budgets === 0 ? "Not drawn: no points were asked for (--budgets 0)." :
                                    "Not drawn: the sizes of the model are not known here (no checkpoint, and " +
                    "the data file is not where it was)."));
    return;
  }
  const program = report.programs[0];
  // Single points come last, so that no family's mark covers them.
  const families = curve.policies.map((policy) => familyOf(policy.name));
  const countOf = (name) => families.filter((family) => family === name).length;
  const names = [...new Set(families)].sort((a, b) => countOf(b) - countOf(a));
  const points = curve.points;
  const measured = report.costs === "measured";
  const slowest = largest([...points, ...curve.policies].map((point) => point.seconds));
  const own = program ?
      [
        {text: "this run, predicted", seconds: program.seconds, measured: false},
        {
          text: `this run, measured (median ${secondsText(report.summary.measured_seconds)})`,
          seconds: report.summary.measured_seconds,
          measured: true
        },
      ].filter((point) => measured && point.seconds > 0) :
      [];
  // A run on a busy machine would press everything else together.
  const ownShown = own.filter((point) => point.seconds <= 1.3 * slowest);
  const least = points[0].budget_bytes;
  const asPlanned = program && measured && report.config["memory.plan"] === "auto" ? [program] : [];
  const reached = reachedBy([...points, ...curve.policies, ...asPlanned], least);
  const moves = curve.policies.some((policy) => policy.name.includes(" + "));
  const linesOfWays = !moves ? [] : ways.map(([text, is, colour]) => ({
    text,
    colour,
    plans: reachedBy(curve.policies.filter((policy) => is(policy.name)), least)
  })).filter((way) => way.plans.length);
  const budgetOf = (bytes) => Math.min(bytes, points[points.length - 1].budget_bytes);
  const holder = element("div", {class: "plot"});
  const curveLegend =
      legend([["var(--text)", "the planner, fastest plan for each budget", "line"],
        ...linesOfWays.map((way) => [way.colour, `the same ${way.text}`, "line"])]);
  curveLegend.append(...names.map((name, number) => smallMark(mark(number, 0, 0), name)),
      ...own.map((point) => smallMark(ownMark(0, 0, point.measured),
                     point.text + (ownShown.includes(point) ? "" : ", above the picture"))));
  place.append(
      note(
          "Planned seconds of a step at budgets from the smallest that works to keep-everything, " +
          "with what single policies reach." + (measured ? "" : estimated)),
      curveLegend, holder,
      note(`Smallest budget ${bytesText(points[0].budget_bytes)}, a step of ` +
          `${secondsText(points[0].seconds)}; keep-everything ` +
          `${bytesText(points[points.length - 1].budget_bytes)}, ` +
          `${secondsText(points[points.length - 1].seconds)}.`));
  const bytes = [
    ...points.map((point) => point.budget_bytes),
    ...curve.policies.map((policy) => policy.peak_bytes)
  ];
  const seconds = [
    ...points.map((point) => point.seconds), ...curve.policies.map((policy) => policy.seconds),
    ...ownShown.map((point) => point.seconds)
  ];
  const pad =
      (from, to, share) => [from - share * (to - from || from), to + share * (to - from || to)];
  const [x0, x1] = pad(smallest(bytes), largest(bytes), 0.04);
  const [y0, y1] = pad(smallest(seconds), largest(seconds), 0.08);
  showPicture(holder, (width) => {
    const plot = makePlot(width, width < 560 ? 280 : 340, {
      from: x0,
      to: x1,
      unit: byteUnit(x1),
      label: `budget of a rank, or peak of a policy (${byteUnit(x1)[0]})`
    },
        {
          from: Math.max(0, y0),
          to: y1,
          unit: secondUnit(y1),
          label: `a step (${secondUnit(y1)[0]})`
        },
        `Planned seconds of a step against the budget: ${secondsText(points[0].seconds)} at ` +
            `${bytesText(points[0].budget_bytes)}, ${
                secondsText(points[points.length - 1].seconds)} at ` +
            bytesText(points[points.length - 1].budget_bytes));
    const targets = [];
    const lineOf = (plans) => plans
        .map(({bytes, seconds}, i) => {
          const x = plot.x(bytes).toFixed(2);
          return (i ? `H${x}V` : `M${x} `) + plot.y(seconds).toFixed(2);
        })
        .join("") + `H${plot.x(points[points.length - 1].budget_bytes).toFixed(2)}`;
    for (const point of reached) {
      targets.push([
        plot.x(point.bytes), plot.y(point.seconds), {
          title: `planner: ${point.plan}`,
          rows: [["fits from", bytesText(point.bytes)], ["a step", secondsText(point.seconds)]]
        }
      ]);
    }
    if (own.length && program.budget_bytes <= x1) {
      const at = plot.x(program.budget_bytes);
      plot.svg.append(
          shape("line", {class: "limit-line", x1: at, x2: at, y1: plot.top, y2: plot.bottom}),
          shape("text", {class: "limit", x: plot.right, y: 13, "text-anchor": "end"},
              `budget ${bytesText(program.budget_bytes)}`));
    }
    for (const way of linesOfWays) {
      plot.svg.append(shape("path",
          {class: "outline dashed", d: lineOf(way.plans), style: `stroke: ${way.colour}`}));
    }
    plot.svg.append(shape("path", {class: "outline", d: lineOf(reached)}));
    const ordered =
        [...curve.policies].sort((a, b) => names.indexOf(familyOf(a.name)) -
            names.indexOf(familyOf(b.name)));
    for (const policy of ordered) {
      const x = plot.x(policy.peak_bytes);
      const y = plot.y(policy.seconds);
      plot.svg.append(mark(names.indexOf(familyOf(policy.name)), x, y));
      targets.push([
        x, y, {
          title: policy.name,
          rows: [["peak", bytesText(policy.peak_bytes)], ["a step", secondsText(policy.seconds)]]
        }
      ]);
    }
    for (const point of ownShown) {
      const x = plot.x(budgetOf(program.budget_bytes));
      const y = plot.y(point.seconds);
      plot.svg.append(ownMark(x, y, point.measured));
      targets.push([
        x, y, {
          title: point.text,
          rows: [
            ["plan", program.name], ["budget", bytesText(program.budget_bytes)],
            ["a step", secondsText(point.seconds)]
          ]
        }
      ]);
    }
    onHover(plot.svg, (x, y) => {
      let near = null;
      let best = 18 ** 2;
      for (const [targetX, targetY, content] of targets) {
        const distance = (targetX - x) ** 2 + (targetY - y) ** 2;
        if (distance <= best) [best, near] = [distance, content];
      }
      return near;
    });
    return plot.svg;
  });
}
