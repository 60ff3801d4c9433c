// Curves of a training: losses and speed by step.

function linePath(xs, ys) {
  return xs.map((x, i) => `${i ? "L" : "M"}${x.toFixed(2)} ${ys[i].toFixed(2)}`).join("");
}

function trainingPlot(holder, describe, draw) {
  showPicture(holder, (width) => {
    const {plot, series} = draw(width);
    for (const {at, values, style, dots} of series) {
      const xs = at.map(plot.x);
      const ys = values.map(plot.y);
      if (xs.length > 1) {
        plot.svg.append(
            shape("path", {class: "series", style: `stroke: ${style}`, d: linePath(xs, ys)}));
      }
      if (!dots && xs.length > 1) continue;
      xs.forEach((x, i) => plot.svg.append(shape("circle",
                     {cx: x, cy: ys[i], r: 3.5, style: `fill: ${style}; stroke: var(--card)`})));
    }
    followPointer(plot, 4, (wanted) => {
      const steps = report.metrics.step;
      let i = placeOf(steps, wanted);
      if (i + 1 < steps.length && steps[i + 1] - wanted < wanted - steps[i]) ++i;
      return {at: steps[i], ...describe(i)};
    });
    return plot.svg;
  });
}

function drawTraining() {
  const place = document.getElementById("training");
  const metrics = report.metrics;
  const validation = metrics.validation;
  const losses = element("div", {class: "plot"});
  const speed = element("div", {class: "plot"});
  place.append(metrics.steps_a_point > 1 ?
          note(`Each point is the mean of ${metrics.steps_a_point} steps.`) :
          "",
      element("div", {class: "columns", style: "margin-top: 8px"},
          element("div", {}, element("h3", {}, "Loss"), legend([
            ["var(--forward)", "training", "line"],
            ...(validation.length ? [["var(--recompute)", "validation", "line"]] : [])
          ]),
              losses),
          element("div", {}, element("h3", {}, "Speed"),
              legend([["var(--backward)", `${report.summary.item}s a second, all ranks`, "line"]]), speed)));
  const first = metrics.step[0];
  const last = metrics.step[metrics.step.length - 1];
  const steps = {from: Math.min(first, last - 1), to: last, whole: true, label: "step"};
  const describe = (i) => {
    const checked = validation.find(([step]) => step === metrics.step[i]);
    return {
      title: `step ${metrics.step[i]}`,
      rows: [
        ["loss", metrics.loss[i].toFixed(4)],
        ...(checked ? [["validation", checked[1].toFixed(4)]] : []),
        [`${report.summary.item}s a second`, Math.round(metrics.items_per_second[i]).toLocaleString("en")],
        ["peak", bytesText(metrics.peak_bytes[i])]
      ]
    };
  };
  trainingPlot(losses, describe, (width) => {
    const values = [...metrics.loss, ...validation.map(([, loss]) => loss)];
    const margin = 0.06 * (largest(values) - smallest(values)) || 0.1;
    return {
      plot: makePlot(width, 260, steps, {
        from: smallest(values) - margin,
        to: largest(values) + margin,
        label: report.summary.item === "token" ? "loss (nats a token)" : "loss"
      },
          `Loss by step, from ${metrics.loss[0].toFixed(3)} to ${
              report.summary.last_loss.toFixed(3)}`),
      series: [
        {at: metrics.step, values: metrics.loss, style: "var(--forward)"},
        {
          at: validation.map(([step]) => step),
          values: validation.map(([, loss]) => loss),
          style: "var(--recompute)",
          dots: true
        },
      ],
    };
  });
  trainingPlot(speed, describe, (width) => {
    const top = 1.05 * largest(metrics.items_per_second);
    const unit = top >= 2e6 ? ["million", 1e6] : top >= 2e3 ? ["thousand", 1e3] : ["", 1];
    return {
      plot: makePlot(width, 260, steps,
          {from: 0, to: top, unit, label: `${report.summary.item}s a second${unit[0] ? ` (${unit[0]})` : ""}`},
          `${report.summary.item}s a second by step`),
      series: [{at: metrics.step, values: metrics.items_per_second, style: "var(--backward)"}],
    };
  });
}
