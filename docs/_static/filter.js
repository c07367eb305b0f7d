// A field above each long table, and above lists of vectors, that shows only the rows with all of its words.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const LONG = 15;
  const add = (before, rows) => {
    const field = document.createElement("input");
    field.type = "search";
    field.className = "filter";
    field.placeholder = `Filter ${rows.length} rows`;
    field.setAttribute("aria-label", field.placeholder);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      rows.forEach((row, at) => {
        row.hidden = !words.every((word) => texts[at].includes(word));
      });
    });
    before.before(field);
  };
  for (const table of document.querySelectorAll("article table")) {
    const rows = [...table.querySelectorAll(":scope > tbody > tr")];
    if (rows.length >= LONG && !table.closest("details")) add(table.closest(".table-wrapper") ?? table, rows);
  }
  for (const list of document.querySelectorAll("article .vectors")) {
    const rows = [...list.querySelectorAll(":scope > details")];
    if (rows.length > 1) add(list, rows);
  }
  // A link to a vector opens it.
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
      target.scrollIntoView();
    }
  };
  window.addEventListener("hashchange", open);
  open();
});
