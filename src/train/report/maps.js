// Maps of truth, forecast and error at one time: the first two on one scale of colours, the error
// on one that is white where there is none.

// Both can be told apart without colour vision, and lightness alone orders the first.
const valueColours = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779",
  "#6ece58", "#b5de2b", "#fde725"];
const errorColours = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7",
  "#f4a582", "#d6604d", "#b2182b", "#67001f"];

// 256 colours [red, green, blue], between those given.
function colourTable(anchors) {
  const numbers = anchors.map((text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
  return Array.from({length: 256}, (_, level) => {
    const place = level / 255 * (numbers.length - 1);
    const low = Math.min(Math.floor(place), numbers.length - 2);
    return numbers[low].map((value, i) =>
        Math.round(value + (numbers[low + 1][i] - value) * (place - low)));
  });
}
const valueTable = colourTable(valueColours);
const errorTable = colourTable(errorColours);

const levelsOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// An axis of a map: values at the outer edges of the first and last cell as the map stands (left to
// right, top to bottom), and whether the data run the other way.
function mapAxis(axis, points, upward) {
  if (axis.first === null) return {from: 0, to: points, flipped: false, text: String};
  const half = (axis.last - axis.first) / (points - 1) / 2;
  const flipped = upward ? axis.last > axis.first : axis.last < axis.first;
  const ends = [axis.first - half, axis.last + half];
  if (flipped) ends.reverse();
  const suffix = axis.name === "latitude" ? ["°S", "°N"] : axis.name === "longitude" ? ["°W", "°E"] : null;
  const text = (value) => suffix === null ? String(value) :
      value === 0                         ? "0°" :
                                            Math.abs(value) + suffix[value > 0 ? 1 : 0];
  if (axis.name === "latitude") ends.forEach((end, i) => ends[i] = Math.max(-90, Math.min(90, end)));
  return {from: ends[0], to: ends[1], flipped, text, degrees: suffix !== null};
}

// Degrees are marked as people count them.
const axisMarks = (axis, count) => {
  if (axis.degrees) {
    const low = Math.min(axis.from, axis.to);
    const high = Math.max(axis.from, axis.to);
    const step = [1, 2, 5, 10, 15, 30, 45, 60, 90, 180].find((step) => (high - low) / step <= count + 0.5);
    const marks = [];
    for (let i = Math.ceil(low / step); step && i * step <= high; ++i) marks.push(i * step);
    if (marks.length) return marks;
  }
  const {at, digits} = ticks(Math.min(axis.from, axis.to), Math.max(axis.from, axis.to), count, 1);
  return at.map((value) => Number(value.toFixed(digits)));
};

// A canvas with one pixel for each value.
function pixels(levels, table, rows, columns, flipRows, flipColumns) {
  const canvas = element("canvas", {width: columns, height: rows});
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let row = 0; row < rows; ++row) {
    for (let column = 0; column < columns; ++column) {
      const from = (flipRows ? rows - 1 - row : row) * columns + (flipColumns ? columns - 1 - column : column);
      const colour = table[levels[from]];
      const to = 4 * (row * columns + column);
      image.data[to] = colour[0];
      image.data[to + 1] = colour[1];
      image.data[to + 2] = colour[2];
      image.data[to + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function colourBar(svg, left, right, top, table, low, high, name) {
  const steps = 64;
  const width = (right - left) / steps;
  for (let i = 0; i < steps; ++i) {
    svg.append(shape("rect", {
      x: left + i * width,
      y: top,
      width: width + 0.5,
      height: 9,
      fill: `rgb(${table[Math.round(i * 255 / (steps - 1))].join(" ")})`
    }));
  }
  const texts = [[left, "start", low], [right, "end", high]];
  texts.forEach(([x, anchor, value]) => svg.append(
      shape("text", {x, y: top + 23, "text-anchor": anchor}, skillNumber(value))));
  svg.append(shape("text", {x: (left + right) / 2, y: top + 23, "text-anchor": "middle"}, name));
}

// The part of a segment that is within a box, by Liang and Barsky, "A new concept and method for line clipping" (1984);
// null where there is none.
function clipped([x0, y0], [x1, y1], box) {
  let [enter, leave] = [0, 1];
  for (const [step, room] of [[x0 - x1, x0 - box.west], [x1 - x0, box.east - x0], [y0 - y1, y0 - box.south],
         [y1 - y0, box.north - y0]]) {
    if (step === 0) {
      if (room < 0) return null;
    } else if (step < 0) {
      enter = Math.max(enter, room / step);
    } else {
      leave = Math.min(leave, room / step);
    }
  }
  if (enter > leave) return null;
  return [enter, leave].map((part) => [x0 + part * (x1 - x0), y0 + part * (y1 - y0)]);
}

// The coast within the axes as one path: where they are wider than one turn around the earth, again.
function coastPath(x, y, xPlace, yPlace) {
  const box = {
    west: Math.min(x.from, x.to),
    east: Math.max(x.from, x.to),
    south: Math.min(y.from, y.to),
    north: Math.max(y.from, y.to),
  };
  const place = ([longitude, latitude]) => `${xPlace(longitude).toFixed(1)} ${yPlace(latitude).toFixed(1)}`;
  const parts = [];
  for (const turn of [-360, 0, 360]) {
    for (const line of coastlines) {
      let last = "";
      for (let i = 1; i < line.length; ++i) {
        const segment = clipped([line[i - 1][0] + turn, line[i - 1][1]], [line[i][0] + turn, line[i][1]], box);
        if (!segment) continue;
        const [from, to] = segment.map(place);
        parts.push(from === last ? `L${to}` : `M${from}L${to}`);
        last = to;
      }
    }
  }
  return parts.join("");
}

// The three maps side by side, or below each other where it is narrow.
function mapsPicture(skill, field, channel, width) {
  const maps = skill.maps;
  const found = field.channels[channel];
  const y = mapAxis(maps.axes[0], skill.points[0], true);
  const x = mapAxis(maps.axes[1], skill.points[1], false);
  const across = width >= 620 ? 3 : 1;
  const gap = 16;
  const margin = {left: 42, right: 10, top: 24, bottom: 62};
  const panel = (width - gap * (across - 1)) / across;
  const inner = panel - margin.left - margin.right;
  const ratio = Math.min(1.1, Math.max(0.35, skill.points[0] / skill.points[1]));
  const tall = Math.round(inner * ratio);
  const stride = margin.top + tall + margin.bottom;
  const height = across === 3 ? stride : 3 * stride;
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": `Maps of ${nameOfChannel(skill, channel)}: truth, forecast and error`,
  });
  const panels = [
    ["truth", "truth", valueTable, found.low, found.high],
    ["forecast", "forecast", valueTable, found.low, found.high],
    ["forecast − truth", "error", errorTable, -found.limit, found.limit],
  ].map(([title, key, table, low, high], number) => {
    const left = (across === 3 ? number * (panel + gap) : 0) + margin.left;
    const top = (across === 3 ? 0 : number * stride) + margin.top;
    const levels = levelsOf(found[key]);
    const holder = shape("foreignObject", {x: left, y: top, width: inner, height: tall},
        pixels(levels, table, maps.rows, maps.columns, y.flipped, x.flipped));
    const xPlace = linear(x.from, x.to, left, left + inner);
    const yPlace = linear(y.from, y.to, top, top + tall);
    svg.append(shape("text", {class: "strong", x: left, y: top - 9}, title), holder);
    if (x.degrees && y.degrees) {
      const d = coastPath(x, y, xPlace, yPlace);
      svg.append(shape("path", {class: "coast below", d}), shape("path", {class: "coast", d}));
    }
    svg.append(shape("rect", {class: "frame", x: left, y: top, width: inner, height: tall}));
    for (const value of axisMarks(x, Math.max(2, inner / 70))) {
      const at = xPlace(value);
      svg.append(shape("line", {class: "axis", x1: at, x2: at, y1: top + tall, y2: top + tall + 4}));
      const text = x.text(value);
      const half = 3.9 * text.length;
      svg.append(shape("text", {
        x: Math.min(Math.max(at, left - margin.left + half), left + inner + margin.right - half),
        y: top + tall + 17,
        "text-anchor": "middle"
      }, text));
    }
    for (const value of axisMarks(y, Math.max(3, tall / 40))) {
      const at = yPlace(value);
      svg.append(shape("line", {class: "axis", x1: left - 4, x2: left, y1: at, y2: at}),
          shape("text", {x: left - 6, y: at + 4, "text-anchor": "end"}, y.text(value)));
    }
    colourBar(svg, left, left + inner, top + tall + 28, table, low, high,
        [number === 2 ? "error" : "", unitOfChannel(skill, channel)].filter(Boolean).join(" in "));
    return {left, top, levels, low, high, title};
  });
  onHover(svg, (px, py) => {
    const inside = panels.find(({left, top}) =>
        px >= left && px < left + inner && py >= top && py < top + tall);
    if (!inside) return null;
    const across = (px - inside.left) / inner;
    const down = (py - inside.top) / tall;
    const column = Math.floor(across * maps.columns);
    const row = Math.floor(down * maps.rows);
    const at = (y.flipped ? maps.rows - 1 - row : row) * maps.columns +
        (x.flipped ? maps.columns - 1 - column : column);
    const shown = (axis, part) =>
        axis.text(Number((axis.from + part * (axis.to - axis.from)).toPrecision(4)));
    return {
      title: `${shown(y, down)}, ${shown(x, across)}`,
      rows: panels.map(({levels, low, high, title}) =>
          [title, skillNumber(low + (high - low) * levels[at] / 255)]),
    };
  });
  return svg;
}

function mapParts(skill, channel) {
  const maps = skill.maps;
  const scale = leadScale(skill);
  const holder = element("div", {class: "plot"});
  let chosen = 0;
  const title = (field) => skill.pairs ? `pair ${maps.samples[field.sample]}` :
      `after ${scale.text(maps.leads[field.lead])}` +
      (field.time ? `, ${field.time}` : ` from sample ${maps.samples[field.sample]}`);
  const heading = element("h3", {});
  const name = () => heading.textContent =
      `Maps of ${channelText(skill, channel)}: ${title(maps.fields[chosen])}`;
  name();
  const draw = showPicture(
      holder, (width) => mapsPicture(skill, maps.fields[chosen], channel, width));
  const [rows, columns] = maps.block;
  return [
    element("div", {style: "margin-top: 18px"}, heading,
        maps.fields.length > 1 ?
            element("div", {class: "controls"}, selection("map", maps.fields.map(title), (number) => {
              chosen = number;
              name();
              draw();
            })) :
            null,
        holder,
        rows * columns > 1 ? note(`Each point is the mean of ${rows} × ${columns} of the data.`) : null)
  ];
}
