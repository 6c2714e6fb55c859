"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const chosen = () => Object.fromEntries(all(".filters select").map((each) => [each.name, each.value]));

  const filter = () => {
    const want = chosen();
    const fits = (each) =>
      Object.entries(want).every(([name, value]) => !value || !(name in each.dataset) || each.dataset[name] === value);
    const rows = all("tr[data-family]");
    rows.forEach((row) => { row.hidden = !fits(row); });
    all("figure, details[data-family]").forEach((each) => { each.hidden = !fits(each); });
    all("svg .series").forEach((each) => {
      each.style.display = !want.method || each.dataset.method === want.method ? "" : "none";
    });
    all("section[data-table]").forEach((each) => {
      const mine = all("tr[data-family]", each);
      each.hidden = mine.length > 0 && mine.every((row) => row.hidden);
    });
    const shown = rows.filter((row) => !row.hidden).length;
    const figures = all("figure").filter((each) => !each.hidden).length;
    document.getElementById("shown").textContent = `${shown} of ${rows.length} rows, ${figures} figures`;
  };

  const key = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const number = parseFloat(text.replace(/,/g, ""));
    return /^-?[\d.]/.test(text) && !Number.isNaN(number) ? number : text.toLowerCase();
  };

  const before = (a, b) => {
    const kinds = [typeof a, typeof b];
    if (kinds[0] !== kinds[1]) return kinds[0] === "number" ? -1 : 1;
    return a < b ? -1 : a > b ? 1 : 0;
  };

  const sort = (button) => {
    const head = button.closest("th");
    const table = head.closest("table");
    const column = [...head.parentNode.children].indexOf(head);
    const up = head.getAttribute("aria-sort") !== "ascending";
    all("th", table).forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
    const missing = (value) => value === "-" || value === "";
    rows.sort(([a], [b]) => (missing(a) || missing(b) ? missing(a) - missing(b) : up ? before(a, b) : before(b, a)));
    rows.forEach(([, row]) => body.append(row));
  };

  const theme = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(theme.dataset.now) + 1) % themes.length];
    theme.dataset.now = next;
    theme.textContent = `Colours: ${next}`;
    if (next === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = next;
  });

  all("thead button").forEach((button) => button.addEventListener("click", () => sort(button)));
  all(".filters select").forEach((each) => each.addEventListener("change", filter));
  document.querySelector(".filters").hidden = false;
  filter();
})();
