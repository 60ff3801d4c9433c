// How good forecasts are: errors and correlations by lead time, and power by scale.

const sourceStyles = {
  model: ["var(--forward)", "line"],
  persistence: ["var(--recompute)", "dashed"],
  climatology: ["var(--backward)", "dotted"],
  "ensemble mean": ["var(--update)", "line"],
};
const spectrumColours = ["var(--kind-4)", "var(--forward)", "var(--update)", "var(--limit)"];

// Four digits that matter, for values of any size.
function skillNumber(value) {
  if (value === null || value === undefined) return "—";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) :
                                                            String(Number(value.toPrecision(4)));
  return text.replaceAll("-", "−");
}

// A channel by the name that the data have it under and, where they say so, what it is: "tensor, pressure".
function nameOfChannel(skill, channel) {
  const meaning = (skill.long_names || [])[channel];
  return skill.channels[channel] + (meaning ? `, ${meaning}` : "");
}

// The unit of a channel, empty where the data tell none, and its name with it.
const unitOfChannel = (skill, channel) => (skill.units || [])[channel] || "";
const channelText = (skill, channel) =>
    nameOfChannel(skill, channel) + (unitOfChannel(skill, channel) ? ` (${unitOfChannel(skill, channel)})` : "");

// What an axis shows, with the unit of a channel.
function withUnit(skill, label, channel) {
  const unit = unitOfChannel(skill, channel);
  return unit ? `${label} (${unit})` : label;
}

// In days; in calendars whose years differ, of the step where that is of whole years.
function yearDays(skill) {
  const days = {"360_day": 360, noleap: 365, all_leap: 366}[skill.calendar];
  if (days) return days;
  const years = Math.round(skill.lead_seconds / 86400 / 365.2425);
  const own = skill.lead_seconds / 86400 / years;
  return years > 0 && Math.abs(own - 365.2425) < 1 ? own : 365.2425;
}
const leadUnits = (skill) =>
    [["years", yearDays(skill) * 86400, 0.98], ["days", 86400, 3], ["hours", 3600, 1], ["seconds", 1, 0]];

// What lead times are counted in: {label, of(step), text(step)}.
function leadScale(skill) {
  const all = skill.rmse[0].length;
  if (!(skill.lead_seconds > 0)) {
    return {
      label: "lead (steps)",
      of: (step) => step,
      text: (step) => `${step} step${step === 1 ? "" : "s"}`
    };
  }
  const unitOf = (step) =>
      leadUnits(skill).find(([, size, least]) => step * skill.lead_seconds >= least * size);
  const [name, size] = unitOf(all);
  return {
    label: `lead (${name})`,
    of: (step) => step * skill.lead_seconds / size,
    text: (step) => {
      const [own, ownSize] = unitOf(step);
      const value = Number((step * skill.lead_seconds / ownSize).toPrecision(3));
      return `${value} ${value === 1 ? own.slice(0, -1) : own}`;
    },
  };
}

function seriesPath(points, kind, colour) {
  return shape("path", {
    class: "series" + (kind === "line" ? "" : " " + kind),
    style: `stroke: ${colour}`,
    d: linePath(points.map(([x]) => x), points.map(([, y]) => y)),
  });
}

// Curves by lead time: `series` is [{name, colour, kind, values: [lead]}], `limits` the ends of the
// axis, where they are not 0 and what the values need.
function leadPlot(holder, skill, label, series, description, {limits} = {}) {
  const scale = leadScale(skill);
  const leads = series[0].values.length;
  const known = series.flatMap(({values}) => values).filter((value) => value !== null);
  const [bottom, top] = limits || [0, 1.06 * largest([...known, 0]) || 1];
  return showPicture(holder, (width) => {
    const plot = makePlot(width, 260, {from: 0, to: scale.of(leads), label: scale.label},
        {from: bottom, to: top, label}, description);
    for (const {values, colour, kind} of series) {
      const points = values.map((value, lead) => [value, lead])
                         .filter(([value]) => value !== null)
                         .map(([value, lead]) => [plot.x(scale.of(lead + 1)), plot.y(value)]);
      if (points.length > 1) plot.svg.append(seriesPath(points, kind, colour));
      if (points.length > 25 || points.length > 1 && kind !== "line") continue;
      points.forEach(([x, y]) => plot.svg.append(shape("circle",
                         {cx: x, cy: y, r: 3, style: `fill: ${colour}; stroke: var(--card)`})));
    }
    followPointer(plot, 4, (wanted) => {
      const nearest = Math.round(wanted / scale.of(1));
      const step = Math.min(leads, Math.max(1, nearest));
      return {
        at: scale.of(step),
        title: `after ${scale.text(step)}`,
        rows: series.map(({name, colour, values}) => [name, skillNumber(values[step - 1]), colour]),
      };
    });
    return plot.svg;
  });
}

// A correlation ends at 1; where there are negative ones, the axis goes down to them.
function correlationLimits(series) {
  const known = series.flatMap(({values}) => values).filter((value) => value !== null);
  return [Math.min(0, Math.floor(5 * smallest([...known, 0])) / 5), 1];
}

// One picture with its title and legend.
function leadPart(skill, title, label, series, description, options) {
  const holder = element("div", {class: "plot"});
  const part = element("div", {}, element("h3", {}, title),
      legend(series.map(({name, colour, kind}) => [colour, name, kind])), holder);
  leadPlot(holder, skill, label, series, description, options);
  return part;
}

const superscripts = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};
const powerText = (exponent) =>
    "10" + [...String(Math.round(exponent))].map((digit) => superscripts[digit]).join("");

// Marks of a logarithmic axis, at most about `count`: 1, 2 and 5 of each decade, or whole decades.
function logMarks(from, to, count) {
  const inside = (at) => at.filter((value) => value >= from - 1e-9 && value <= to + 1e-9);
  const decades = [];
  for (let power = Math.floor(from); power <= Math.ceil(to); ++power) decades.push(power);
  const fine = inside(decades.flatMap((power) => [0, Math.log10(2), Math.log10(5)].map((part) => power + part)));
  if (fine.length <= count) return fine;
  const whole = inside(decades);
  const step = Math.max(1, Math.ceil(whole.length / count));
  return whole.filter((power) => power % step === 0);
}

function spectrumPlot(holder, skill, channel) {
  const spectra = skill.spectra;
  const spherical = spectra.kind === "spherical";
  const scale = leadScale(skill);
  const series = [
    {name: "truth", colour: "var(--text)", kind: "dashed", values: spectra.truth[0][channel]},
    ...spectra.leads.map((lead, i) => ({
      name: skill.pairs ? "model" : `after ${scale.text(lead)}`,
      colour: spectrumColours[spectra.leads.length === 1 ? 1 : i],
      kind: "line",
      values: spectra.model[i][channel],
    })),
  ];
  const count = series[0].values.length;
  const logs = series.map(({values}) =>
      values.slice(1).map((value) => value > 0 ? Math.log10(value) : null));
  const known = logs.flat().filter((value) => value !== null);
  if (count < 3 || !known.length) return null;
  // What is further below the top is rounding.
  const top = largest(known) + 0.2;
  const bottom = Math.max(smallest(known) - 0.2, top - 14);
  const draw = showPicture(holder, (width) => {
    const right = Math.log10(count - 1);
    const height = 280;
    const plot = makePlot(width, height, {
      from: 0,
      to: right,
      at: logMarks(0, right, Math.max(2, width / 80)),
      text: (value) => String(Math.round(10 ** value)),
      label: spherical ? "degree of spherical harmonics" : "wavenumber along rows",
    }, {
      from: bottom,
      to: top,
      at: logMarks(bottom, top, 6),
      text: (value) => Math.abs(value - Math.round(value)) < 1e-9 ?
          powerText(value) :
          `${Math.round(10 ** (value - Math.floor(value)))}·${powerText(Math.floor(value))}`,
      label: "power",
    }, `Power of truth and forecasts of ${nameOfChannel(skill, channel)} by scale`);
    series.forEach(({colour, kind}, number) => {
      const points = logs[number].map((value, i) => [value, i + 1])
                         .filter(([value]) => value !== null && value >= bottom)
                         .map(([value, k]) => [plot.x(Math.log10(k)), plot.y(value)]);
      if (points.length > 1) plot.svg.append(seriesPath(points, kind, colour));
    });
    onHover(plot.svg, (x, y) => {
      if (x < plot.left - 4 || x > plot.right + 4 || y > plot.bottom) return null;
      const k = Math.min(count - 1, Math.max(1, Math.round(10 ** plot.valueAt(x))));
      return {
        title: `${spherical ? "degree" : "wavenumber"} ${k}`,
        rows: series.map(({name, values, colour}) => [name, skillNumber(values[k]), colour]),
      };
    });
    return plot.svg;
  });
  return {draw, entries: series.map(({name, colour, kind}) => [colour, name, kind])};
}

// All numbers at one lead.
function skillTable(skill) {
  const heads = ["RMSE", "bias", "relative L2", "ACC"];
  const keys = ["rmse", "bias", "relative_l2", "acc"];
  return element("div", {class: "wide"}, element("table", {class: "skill"},
      element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "channel"),
          element("th", {scope: "col"}, "source"),
          heads.map((head) => element("th", {class: "number", scope: "col"}, head)))),
      element("tbody", {}, skill.channels.flatMap((channel, c) => skill.sources.map((source, s) =>
          element("tr", {}, element("th", {scope: "row"}, s ? "" : channelText(skill, c)),
              element("td", {}, source),
              keys.map((key) => element("td", {class: "number"}, skillNumber(skill[key][s][0][c])))))))));
}

function drawSkill() {
  const place = document.getElementById("skill");
  const skill = report.skill;
  if (!skill) {
    place.closest("section").remove();
    return;
  }
  const scale = leadScale(skill);
  const leads = skill.rmse[0].length;
  const rolled = leads > 1;
  const weights = {
    "cos-latitude": "the cosine of the latitude",
    "cell-area": "the area of cells between neighbouring rows",
    quadrature: "the quadrature of the sphere",
  };
  place.append(note(
      `${skill.samples} ${skill.pairs ? "pair" : "forecast"}${skill.samples === 1 ? "" : "s"} of ${skill.data}` +
      (skill.pairs ? "" : `, up to ${scale.text(leads)}`) + ` (checkpoint of step ${skill.step}). ` +
      (skill.weighting === "uniform" ?
              "All points count the same" :
              `Means over points are weighted by ${weights[skill.weighting]} (${skill.weighting})`) +
      "; RMSE is the root of the mean of squared errors over all of them, ACC the mean of their " +
      `correlations of anomalies. Climatology: ${skill.climatology}.`));
  if (skill.crps) place.append(note(ensembleText(skill)));
  const body = element("div", {});
  const show = (channel) => {
    hideTooltip();
    forgetPictures(body);
    const parts = [];
    if (rolled) {
      const plots = element("div", {class: "columns", style: "margin-top: 8px"});
      for (const [title, label, key] of [["Error", "RMSE", "rmse"], ["Correlation of anomalies", "ACC", "acc"]]) {
        const series = skill.sources
                           .map((source, s) => ({
                             name: source,
                             colour: sourceStyles[source][0],
                             kind: sourceStyles[source][1],
                             values: skill[key][s].map((lead) => lead[channel]),
                           }))
                           .filter(({values}) => values.some((value) => value !== null));
        const correlates = key === "acc";
        plots.append(leadPart(skill, `${title}: ${nameOfChannel(skill, channel)}`,
            correlates ? label : withUnit(skill, label, channel), series,
            `${label} of ${nameOfChannel(skill, channel)} by lead time`,
            correlates ? {limits: correlationLimits(series)} : {}));
      }
      parts.push(plots);
    }
    if (skill.crps) parts.push(...ensembleParts(skill, channel));
    if (skill.spectra && channel < skill.spectra.truth[0].length) {
      const holder = element("div", {class: "plot"});
      const spectrum = spectrumPlot(holder, skill, channel);
      if (spectrum) {
        parts.push(element("div", {style: "margin-top: 18px"},
            element("h3", {}, `Power spectrum: ${nameOfChannel(skill, channel)}`), legend(spectrum.entries), holder));
      }
    }
    if (skill.maps && channel < skill.maps.fields[0].channels.length) {
      parts.push(...mapParts(skill, channel));
    }
    if (skill.maps && channel >= skill.maps.fields[0].channels.length) {
      parts.push(note("Spectra and maps of this channel are in the HDF5 file of the evaluation only."));
    }
    body.replaceChildren(...parts);
  };
  if (!rolled) place.append(skillTable(skill));
  if (skill.channels.length > 1) {
    place.append(element("div", {class: "controls"}, selection("channel", skill.channels.map((_, channel) => channelText(skill, channel)), show)));
  }
  place.append(body);
  show(0);
}
