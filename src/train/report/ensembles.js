// How good ensembles are: their score, whether they spread as far as they err, and where among the
// members the truth falls.

function ensembleText(skill) {
  return `Ensembles have ${skill.members} members, which differ by noise of ${skillNumber(skill.noise)} deviations in ` +
      "their initial states. CRPS is the fair score, which falls to 0 for members that are all right and is the mean " +
      "absolute error of a single forecast. Where an ensemble is reliable, it spreads as far as its mean errs, and the " +
      "truth has every rank among its members equally often: a histogram that is high at both ends is of members that " +
      "are too much alike, one that leans is of a bias.";
}

function rankPlot(holder, skill, channel, lead) {
  const shares = skill.rank_histogram[lead - 1][channel];
  const level = 1 / shares.length;
  const count = shares.length;
  const step = Math.ceil(count / 12);
  const marks = shares.map((_, rank) => rank).filter((rank) => rank % step === 0);
  return showPicture(holder, (width) => {
    const plot = makePlot(width, 240,
        {from: -0.5, to: count - 0.5, at: marks, text: String, label: "members below the truth"},
        {from: 0, to: 100 * Math.max(1.1 * largest(shares), 1.5 * level), label: "points (%)"},
        `Ranks of the truth among the members for ${nameOfChannel(skill, channel)}`);
    const gap = Math.min(2, (plot.x(1) - plot.x(0)) / 8);
    shares.forEach((share, rank) => plot.svg.append(shape("rect", {
      x: plot.x(rank - 0.5) + gap,
      width: plot.x(rank + 0.5) - plot.x(rank - 0.5) - 2 * gap,
      y: plot.y(100 * share),
      height: plot.bottom - plot.y(100 * share),
      style: "fill: var(--update)",
    })));
    const at = plot.y(100 * level);
    plot.svg.append(shape("line", {class: "level", x1: plot.left, x2: plot.right, y1: at, y2: at}));
    onHover(plot.svg, (x, y) => {
      if (x < plot.left || x > plot.right || y > plot.bottom) return null;
      const rank = Math.min(count - 1, Math.max(0, Math.round(plot.valueAt(x))));
      return {
        title: `${rank} of ${count - 1} members below the truth`,
        rows: [["points", percentText(shares[rank])], ["if reliable", percentText(level)]],
      };
    });
    return plot.svg;
  });
}

function ensembleParts(skill, channel) {
  const scale = leadScale(skill);
  const leads = skill.crps.length;
  const by = (values) => values.map((lead) => lead[channel]);
  const name = nameOfChannel(skill, channel);
  const mean = skill.rmse[skill.sources.indexOf("ensemble mean")];
  const parts = [];
  if (leads > 1) {
    parts.push(element("div", {class: "columns"},
        leadPart(skill, `Ensembles: ${name}`, withUnit(skill, "error, spread, CRPS", channel),
            [
              {name: "RMSE of the mean", colour: "var(--update)", kind: "line", values: by(mean)},
              {name: "spread", colour: "var(--recompute)", kind: "dashed", values: by(skill.spread)},
              {name: "CRPS", colour: "var(--forward)", kind: "line", values: by(skill.crps)},
            ],
            `CRPS, spread and error of ensembles of ${name} by lead time`),
        leadPart(skill, `Spread over error: ${name}`, "spread-skill ratio",
            [
              {name: "ensembles", colour: "var(--update)", kind: "line", values: by(skill.spread_skill_ratio)},
              {name: "reliable", colour: "var(--quiet)", kind: "dotted", values: skill.crps.map(() => 1)},
            ],
            `Spread over error of ensembles of ${name} by lead time`)));
  }
  if (leads === 1) {
    parts.push(note(`CRPS ${skillNumber(skill.crps[0][channel])}, spread ${skillNumber(skill.spread[0][channel])}, ` +
        `RMSE of the mean ${skillNumber(mean[0][channel])}, spread-skill ratio ` +
        `${skillNumber(skill.spread_skill_ratio[0][channel])}.`));
  }
  const holder = element("div", {class: "plot"});
  const show = (lead) => {
    forgetPictures(holder);
    rankPlot(holder, skill, channel, lead + 1);
  };
  const texts = skill.crps.map((_, lead) => scale.text(lead + 1));
  parts.push(element("div", {style: "margin-top: 18px"}, element("h3", {}, `Ranks of the truth: ${name}`),
      leads > 1 ? element("div", {class: "controls"}, selection("after", texts, show)) : null,
      legend([["var(--update)", "points with so many members below the truth"], ["var(--quiet)", "reliable", "dashed"]]),
      holder));
  show(0);
  return parts;
}
