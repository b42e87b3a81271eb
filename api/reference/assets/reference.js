// Finds operations in the menu. The pages work without it.
"use strict";
(() => {
  const box = document.getElementById("search");
  const input = document.getElementById("filter");
  const none = document.getElementById("none");
  const entries = [...document.querySelectorAll(".side a[data-find]")];

  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word);
    let found = 0;
    for (const entry of entries) {
      const text = (entry.dataset.find + " " + entry.textContent).toLowerCase();
      const shown = words.every((word) => text.includes(word));
      entry.parentElement.hidden = !shown;
      found += shown ? 1 : 0;
    }
    for (const group of document.querySelectorAll(".side .group")) {
      group.hidden = !group.querySelector("li:not([hidden])");
    }
    none.hidden = found > 0;
  };

  box.hidden = false;
  input.addEventListener("input", filter);
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter") {
      const first = entries.find((entry) => !entry.parentElement.hidden);
      if (first && input.value.trim()) first.click();
    } else if (e.key === "Escape") {
      input.value = "";
      filter();
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select")) return;
    e.preventDefault();
    input.focus();
  });
  filter();
})();
