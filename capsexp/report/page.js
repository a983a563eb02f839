// Sorts and filters the table of runs, and copies commands. The page is complete without it.
"use strict";

const runs = document.querySelector("table.runs");
const headers = [...runs.tHead.rows[0].cells];
const body = runs.tBodies[0];
const lines = [...body.rows];
const form = document.querySelector(".filters");
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
  const [x, y] = [a, b].map((cell) => (numeric ? cell.dataset.number ?? "" : texts(cell).join(" ")));
  if (x === "" || y === "") return (x === "") - (y === "");
  return direction * (numeric ? x - y : collator.compare(x, y));
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
    line.hidden = !found || !chosen.every((select) => texts(line.cells[select.name]).includes(select.value));
  }
  const shown = lines.filter((line) => !line.hidden).length;
  count.textContent = `${shown} of ${lines.length} runs`;
}

// Puts a header's text into a button that sorts.
function sortable(header, column) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...header.childNodes);
  button.addEventListener("click", () => sort(column));
  header.append(button);
}

// A choice among a column's texts, where there are several.
function filterable(header, column) {
  const found = [...new Set(lines.flatMap((line) => texts(line.cells[column])))].filter(Boolean).sort(collator.compare);
  if (found.length < 2) return;
  const [label, select] = ["label", "select"].map((name) => document.createElement(name));
  select.name = column;
  select.append(new Option("all", ""), ...found.map((text) => new Option(text, text)));
  label.append(`${header.textContent} `, select);
  form.insertBefore(label, count);
}

// Copies a command; where the browser refuses, selects it.
function copyable(code) {
  const button = document.createElement("button");
  button.type = "button";
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

// Boxes that scroll can be focused, to be scrolled by key.
const reachable = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    const whole = target.scrollWidth <= target.clientWidth && target.scrollHeight <= target.clientHeight;
    target.tabIndex = whole ? -1 : 0;
  }
});

headers.forEach((header, column) => {
  if ("filter" in header.dataset) filterable(header, column);
  sortable(header, column);
});
document.querySelectorAll(".commands code").forEach(copyable);
document.querySelectorAll(".scroll").forEach((box) => reachable.observe(box));
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
filter();
