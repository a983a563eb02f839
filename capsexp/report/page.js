// Sorts and filters the table of runs, draws curves, and copies commands. Choices stay in the address.
"use strict";

const address = new URLSearchParams(location.search);

// Keeps a choice in the address, unless it is the usual one.
function keep(name, value, usual) {
  if (value === usual) address.delete(name);
  else address.set(name, value);
  const query = address.size ? `?${address}` : location.pathname;
  history.replaceState(null, "", query + location.hash);
}

const runs = document.querySelector("table.runs");
const headers = [...runs.tHead.rows[0].cells];
const body = runs.tBodies[0];
const lines = [...body.rows];
const form = document.querySelector("#runs .filters");
const search = form.querySelector("input");
const count = form.querySelector("output");
const collator = new Intl.Collator("en", { numeric: true });

// A cell's text, or its texts where it has parts.
function texts(cell) {
  const parts = [...cell.querySelectorAll(".part")];
  return parts.length ? parts.map((part) => part.textContent) : [cell.textContent.trim()];
}

// Empty cells come last in both directions.
function compare(a, b, numeric, direction) {
  const [x, y] = [a, b].map((cell) => texts(cell).join(" "));
  if (x === "" || y === "") return (x === "") - (y === "");
  const number = (text) => Number(text.replaceAll(",", ""));
  return direction * (numeric ? number(x) - number(y) : collator.compare(x, y));
}

function sort(column) {
  const header = headers[column];
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const numeric = header.classList.contains("number");
  headers.forEach((other) => other.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  lines.sort((a, b) => compare(a.cells[column], b.cells[column], numeric, direction));
  body.append(...lines);
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/);
  const chosen = [...form.querySelectorAll("select")].filter((select) => select.value !== "");
  for (const line of lines) {
    const whole = line.textContent.toLowerCase();
    const found = words.every((word) => whole.includes(word));
    line.hidden = !found || !chosen.every((select) => texts(line.cells[select.dataset.column]).includes(select.value));
  }
  const shown = lines.filter((line) => !line.hidden).length;
  count.textContent = `${shown} of ${lines.length} runs`;
  for (const field of form.elements) if (field.name) keep(`runs.${field.name}`, field.value, "");
}

// Puts a header's text into a button that sorts.
function sortable(header, column) {
  const button = document.createElement("button");
  button.append(...header.childNodes);
  button.addEventListener("click", () => sort(column));
  header.append(button);
}

// A choice among a column's texts, where there are several.
function filterable(header, column) {
  const found = [...new Set(lines.flatMap((line) => texts(line.cells[column])))].filter(Boolean).sort(collator.compare);
  if (found.length < 2) return;
  const [label, select] = ["label", "select"].map((name) => document.createElement(name));
  select.name = header.textContent;
  select.dataset.column = column;
  select.append(new Option("all", ""), ...found.map((text) => new Option(text, text)));
  label.append(`${header.textContent} `, select);
  form.insertBefore(label, count);
}

// Copies a command; where the browser refuses, selects it.
function copyable(code) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.after(button);
}

// Curves: a line per run, coloured by its row.
const data = JSON.parse(document.getElementById("curves-data").textContent);
const choice = document.querySelector("#curves .filters");
const plot = document.querySelector(".plot");
const [canvas, note, boxes] = plot.children;
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a6fd1", "#7f7f7f"];
const HEIGHT = 340;
const LETTER = 7; // px, at most

function draw(parent, name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

function colours(line) {
  return { stroke: COLOURS[line % 8], "stroke-dasharray": ["none", "6 3", "2 2"][Math.floor(line / 8) % 3] };
}

// Round steps, about five of them.
function ticks(low, high) {
  const raw = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => +((first + place) * step).toPrecision(6));
}

// A label at the end of a line, shortened to its room; labels move apart where they would overlap.
function label(ends, left, room) {
  let last = -Infinity;
  for (const end of ends.sort((a, b) => a.y - b.y)) {
    last = Math.max(end.y, last + 14);
    const text = end.text.length * LETTER > room ? `${end.text.slice(0, Math.floor(room / LETTER) - 1)}…` : end.text;
    draw(canvas, "text", { x: left, y: last + 4, class: "label" }, text).style.fill = COLOURS[end.line % 8];
  }
}

function drawCurves() {
  const [, rows] = data.sets[choice.data.selectedIndex];
  const name = `${choice.images.value} ${choice.quantity.value}`;
  const shown = [...boxes.querySelectorAll("input")].filter((box) => box.checked).map((box) => +box.value);
  const curves = shown.flatMap((line) => rows[line][2].map(([seed, run]) => {
    const { epochs, [name]: values } = data.runs[run];
    return { line, seed, epochs, points: values.map((value, place) => ({ value, epoch: Math.min(1 + place * data.every, epochs) })) };
  }));
  const upwards = choice.quantity.value === "accuracy";
  canvas.replaceChildren();
  canvas.onpointermove = null;
  note.textContent = `${name} after each epoch${upwards ? ", %" : ""}`;
  keep("curves.data", choice.data.value, data.sets[data.first][0]);
  keep("curves.quantity", choice.quantity.value, "accuracy");
  keep("curves.images", choice.images.value, "test");
  const usual = initial(choice.data.selectedIndex);
  keep("curves.rows", shown.join(" "), usual.join(" "));
  // The first, steep tenth of long curves may lie outside, so that the rest can be told apart.
  const late = curves.flatMap(({ epochs, points }) => points.filter(({ epoch }) => epochs < 20 || epoch > epochs / 10));
  const values = late.map(({ value }) => value).filter((value) => value !== null);
  if (!values.length) return;
  const width = Math.max(300, canvas.clientWidth);
  canvas.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const room = Math.min(240, width / 3);
  const box = { left: 50, right: width - room, top: 10, bottom: HEIGHT - 35 };
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const last = Math.max(...curves.map((curve) => curve.epochs));
  const x = (epoch) => box.left + ((epoch - 1) / Math.max(1, last - 1)) * (box.right - box.left);
  const y = (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
  for (const value of ticks(low, high)) {
    draw(canvas, "path", { class: "grid", d: `M${box.left} ${y(value)}H${box.right}` });
    draw(canvas, "text", { class: "end", x: box.left - 6, y: y(value) + 4 }, value);
  }
  for (const epoch of ticks(1, last).filter(Number.isInteger)) {
    draw(canvas, "text", { class: "middle", x: x(epoch), y: box.bottom + 18 }, epoch);
  }
  draw(canvas, "text", { class: "end", x: box.right, y: box.bottom + 33 }, "epoch");
  const [points, ends] = [[], new Map()];
  for (const { line, seed, points: measured } of curves) {
    const found = measured.filter(({ value }) => value !== null && value >= low && value <= high)
      .map(({ value, epoch }) => ({ x: x(epoch), y: y(value), value, epoch, line, seed }));
    if (!found.length) continue;
    points.push(...found);
    ends.set(line, [...(ends.get(line) ?? []), found.at(-1).y]);
    const d = found.map((point, place) => `${place ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("");
    draw(canvas, "path", { d, ...colours(line) });
  }
  const labels = [...ends].map(([line, heights]) => (
    { line, y: heights.reduce((a, b) => a + b) / heights.length, text: rows[line][0].replace(/^[^:]*: /, "") }));
  label(labels, box.right + 6, room - 8);
  const mark = draw(canvas, "circle", { r: 4, visibility: "hidden" });
  canvas.onpointermove = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM().inverse());
    const distance = (point) => (point.x - place.x) ** 2 + (point.y - place.y) ** 2;
    const nearest = points.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    for (const [key, value] of [["cx", nearest.x], ["cy", nearest.y], ["fill", COLOURS[nearest.line % 8]], ["visibility", "visible"]]) {
      mark.setAttribute(key, value);
    }
    const [row, training] = rows[nearest.line];
    note.textContent = `${row}, ${training}, seed ${nearest.seed}, epoch ${nearest.epoch}: ${nearest.value}${upwards ? " %" : ""}`;
  };
}

// The rows that are drawn at first: those of the answer, else the first eight.
function initial(set) {
  return set === data.first && data.rows.length ? data.rows : data.sets[set][1].map((_, line) => line).slice(0, 8);
}

// A box per row of the chosen data set.
function listRows(chosen) {
  const [, rows] = data.sets[choice.data.selectedIndex];
  const checked = chosen ?? initial(choice.data.selectedIndex);
  const labels = rows.map(([row, training], line) => {
    const [label, box] = ["label", "input"].map((name) => document.createElement(name));
    Object.assign(box, { type: "checkbox", value: line, checked: checked.includes(line) });
    label.append(box, " ");
    draw(draw(label, "svg", { viewBox: "0 0 24 8" }), "path", { d: "M0 4H24", ...colours(line) });
    label.append(` ${row}, ${training}`);
    return label;
  });
  boxes.replaceChildren(boxes.firstElementChild, ...labels);
}

headers.forEach((header, column) => {
  if ("filter" in header.dataset) filterable(header, column);
  sortable(header, column);
});
for (const field of form.elements) if (field.name) field.value = address.get(`runs.${field.name}`) ?? "";
document.querySelectorAll(".commands code").forEach(copyable);
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
filter();

if (data.sets.length) {
  choice.data.append(...data.sets.map(([name]) => new Option(name, name)));
  choice.data.selectedIndex = data.first;
  for (const field of choice.elements) {
    const kept = address.get(`curves.${field.name}`);
    if ([...field.options].some((option) => option.value === kept)) field.value = kept;
  }
  listRows(address.get("curves.rows")?.split(" ").filter(Boolean).map(Number));
  choice.data.addEventListener("input", () => listRows());
  choice.addEventListener("input", drawCurves);
  boxes.addEventListener("input", drawCurves);
  choice.hidden = plot.hidden = false;
  new ResizeObserver(drawCurves).observe(plot);
}
