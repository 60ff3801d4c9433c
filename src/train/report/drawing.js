// What all pictures share: elements, numbers for people, axes, the tooltip, and drawing again when
// the width changes.

const report = JSON.parse(document.getElementById("data").textContent);
const vectorSpace = document.getElementById("seed").namespaceURI;

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}
const element = (name, attributes, ...children) =>
    put(document.createElement(name), attributes, children);
const shape = (name, attributes, ...children) =>
    put(document.createElementNS(vectorSpace, name), attributes, children);
const note = (text) => element("p", {class: "note"}, text);

const byteUnits =
    [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
const byteUnit = (bytes) =>
    byteUnits.find(([, size]) => Math.abs(bytes) >= size) || byteUnits[byteUnits.length - 1];

function bytesText(bytes) {
  const [unit, size] = byteUnit(bytes);
  return (size === 1 ? String(bytes) : (bytes / size).toFixed(2)) + " " + unit;
}

// Three digits that matter.
function shortNumber(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : 2);
}

const secondUnits = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]];
const secondUnit = (seconds) =>
    secondUnits.find(([, size]) => Math.abs(seconds) >= size) || secondUnits[2];

function secondsText(seconds) {
  const [unit, size] = secondUnit(seconds);
  return shortNumber(seconds / size) + " " + unit;
}

function percentText(share) { return (100 * share).toFixed(1) + " %"; }

// About `count` round steps between the ends, in multiples of `unit`; `whole` steps are of 1 at
// least.
function ticks(from, to, count, unit, whole) {
  const span = (to - from) / unit;
  if (!(span > 0)) return {at: [from], digits: 0};
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const round = power * [1, 2, 5, 10].find((factor) => power * factor >= raw * 0.999);
  const step = whole ? Math.max(1, round) : round;
  const at = [];
  for (let i = Math.ceil(from / unit / step - 1e-9); i * step <= to / unit + 1e-9 * step; ++i) {
    at.push(i * step * unit);
  }
  return {at, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9))};
}

const linear = (from, to, first, last) => (value) =>
    first + ((value - from) / (to - from || 1)) * (last - first);

// Under its tick, and moved inside where it would stick out of the picture.
function tickLabel(at, y, width, text) {
  const half = 3.9 * text.length;
  const place = Math.min(Math.max(at, half), width - half);
  return shape("text", {x: place, y, "text-anchor": "middle"}, text);
}

// A plot with a left and a bottom axis. `x` and `y` are {from, to, unit: [name, size], whole,
// label}, or with marks of their own {from, to, at: [value], text(value), label}; the label of y
// stands above its axis, that of x below it. The rest of the picture goes into `svg`.
function makePlot(width, height, x, y, description) {
  const margin = {left: y ? 52 : 8, right: 14, top: y ? 26 : 4, bottom: 42};
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": description,
  });
  const plot = {
    svg,
    width,
    height,
    left: margin.left,
    right: width - margin.right,
    top: margin.top,
    bottom: height - margin.bottom,
  };
  plot.x = linear(x.from, x.to, plot.left, plot.right);
  plot.valueAt = linear(plot.left, plot.right, x.from, x.to);
  const axisTicks = (axis, count) => axis.at ?
      {at: axis.at, digits: 0} :
      ticks(axis.from, axis.to, count, axis.unit ? axis.unit[1] : 1, axis.whole);
  const tickText = (axis, value, digits) => axis.text ?
      axis.text(value) :
      value === 0 ? "0" : (value / (axis.unit ? axis.unit[1] : 1)).toFixed(digits);
  if (y) {
    plot.y = linear(y.from, y.to, plot.bottom, plot.top);
    const marks = axisTicks(y, Math.max(2, Math.round((plot.bottom - plot.top) / 36)));
    for (const value of marks.at) {
      const at = plot.y(value);
      svg.append(shape("line", {class: "grid", x1: plot.left, x2: plot.right, y1: at, y2: at}),
          shape("text", {x: plot.left - 7, y: at + 4, "text-anchor": "end"},
              tickText(y, value, marks.digits)));
    }
    svg.append(shape("text", {x: 2, y: 13}, y.label));
  }
  const marks = axisTicks(x, Math.max(2, Math.round((plot.right - plot.left) / 72)));
  for (const value of marks.at) {
    const at = plot.x(value);
    svg.append(shape("line", {class: "axis", x1: at, x2: at, y1: plot.bottom, y2: plot.bottom + 4}),
        tickLabel(at, plot.bottom + 17, width, tickText(x, value, marks.digits)));
  }
  svg.append(shape("line",
                 {class: "axis", x1: plot.left, x2: plot.right, y1: plot.bottom, y2: plot.bottom}),
      shape("text", {x: (plot.left + plot.right) / 2, y: plot.bottom + 35, "text-anchor": "middle"},
          x.label));
  return plot;
}

// Calls `draw(width)` now, when the width of `holder` changes, and for paper; what it returns is
// shown.
const pictures = [];
function showPicture(holder, draw) {
  const picture = {
    holder,
    shown: 0,
    redraw(width) {
      picture.shown = width;
      hideTooltip();
      holder.replaceChildren(draw(width));
    },
    fit() {
      const width = Math.floor(holder.clientWidth);
      if (width > 0 && width !== picture.shown) picture.redraw(width);
    },
  };
  picture.observer = new ResizeObserver(() => picture.fit());
  picture.observer.observe(holder);
  pictures.push(picture);
  return () => picture.redraw(Math.floor(holder.clientWidth) || 700);
}
// Before what is inside of `place` goes away.
function forgetPictures(place) {
  for (const picture of pictures.filter(({holder}) => place.contains(holder))) {
    picture.observer.disconnect();
    pictures.splice(pictures.indexOf(picture), 1);
  }
}
const paperWidth = 690;
window.addEventListener("beforeprint",
    () => pictures.forEach((picture) => picture.redraw(
                               picture.holder.closest(".columns") ? paperWidth / 2 : paperWidth)));
window.addEventListener("afterprint", () => pictures.forEach((picture) => picture.fit()));

// `options` is [[value, text], …]; `choose` is called with the value that was picked.
function choice(label, options, chosen, choose) {
  const group = element("span", {class: "group", role: "group", "aria-label": label});
  for (const [value, text] of options) {
    const button =
        element("button", {type: "button", "aria-pressed": String(value === chosen)}, text);
    button.addEventListener("click", () => {
      for (const other of group.children)
        other.setAttribute("aria-pressed", String(other === button));
      choose(value);
    });
    group.append(button);
  }
  return element("span", {class: "choice"}, label, group);
}

// One of many: `choose` is called with the number of the text that was picked.
function selection(label, texts, choose) {
  const list = element("select", {}, texts.map((text) => element("option", {}, text)));
  list.addEventListener("change", () => choose(list.selectedIndex));
  return element("label", {class: "choice"}, label, list);
}

const tooltip = document.getElementById("tooltip");
function hideTooltip() { tooltip.hidden = true; }

// `content` is {title, lines: [text], rows: [[name, value, colour]]}.
function showTooltip(content, clientX, clientY) {
  const rows = (content.rows || [])
                   .map(([name, value, colour]) => element("tr", {},
                            element("td", {}, colour ? swatch(colour) : null, name),
                            element("td", {class: "number"}, value)));
  tooltip.replaceChildren(element("b", {}, content.title),
      ...(content.lines || []).map((line) => element("div", {}, line)),
      ...(rows.length ? [element("table", {}, element("tbody", {}, rows))] : []));
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  const page = document.documentElement;
  const left =
      clientX + 14 + box.width > page.clientWidth ? clientX - 14 - box.width : clientX + 14;
  const top =
      clientY + 14 + box.height > page.clientHeight ? clientY - 14 - box.height : clientY + 14;
  tooltip.style.left = Math.max(8, Math.min(left, page.clientWidth - box.width - 8)) + "px";
  tooltip.style.top = Math.max(8, top) + "px";
}

// `find(x, y)` in the picture's own units returns a tooltip's content, or null.
function onHover(svg, find) {
  const move = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const content = find((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    if (content)
      showTooltip(content, event.clientX, event.clientY);
    else
      hideTooltip();
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", hideTooltip);
}

// A line over a plot that goes with the pointer, up to `margin` beyond both ends. What
// `describe(value)` returns of the value under the pointer says where the line stands, {at}, and
// what the tooltip shows.
function followPointer(plot, margin, describe) {
  const cursor =
      shape("line", {class: "cursor", y1: plot.top, y2: plot.bottom, visibility: "hidden"});
  plot.svg.append(cursor);
  onHover(plot.svg, (x, y) => {
    const inside = x >= plot.left - margin && x <= plot.right + margin && y <= plot.bottom;
    cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    if (!inside) return null;
    const {at, ...content} = describe(plot.valueAt(x));
    cursor.setAttribute("x1", plot.x(at));
    cursor.setAttribute("x2", plot.x(at));
    return content;
  });
}

function swatch(colour, kind) {
  const line = kind === "line" || kind === "dashed" || kind === "dotted";
  return element("span", {
    class: "swatch" + (line ? " line" : "") + (line && kind !== "line" ? " " + kind : ""),
    style: line ? `border-color: ${colour}` : `background: ${colour}`,
  });
}

// `entries` is [[colour, text, kind]].
function legend(entries) {
  return element("ul", {class: "legend"},
      entries.map(([colour, text, kind]) => element("li", {}, swatch(colour, kind), text)));
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);
const smallest = (values) => values.reduce((least, value) => Math.min(least, value), Infinity);

// Where each entry of a list of durations begins.
function starts(durations) {
  let now = 0;
  return durations.map((duration) => {
    const begin = now;
    now += duration;
    return begin;
  });
}

// The last place whose value is not above `wanted`, in an ascending list.
function placeOf(ascending, wanted) {
  let low = 0;
  let high = ascending.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (ascending[middle] <= wanted)
      low = middle;
    else
      high = middle;
  }
  return low;
}

const notEnded = "The run has not written its Programs yet: `garonne train` does so when it ends " +
    "or is asked to stop.";
