// What the scripts of the console and of the portal have in common. It stands before each of them.
"use strict";
const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

// wireChoices lets fields hide the choices that lack what is typed into them.
const wireChoices = (from) => {
  for (const box of all("input[data-filter]", from)) {
    const groups = all("details", document.getElementById(box.dataset.filter));
    const opened = groups.filter((g) => g.open);
    box.parentElement.hidden = false;
    box.addEventListener("keydown", (e) => { if (e.key === "Enter") e.preventDefault(); });
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      for (const group of groups) {
        const whole = $("summary", group).textContent.toLowerCase().includes(wanted);
        let shown = 0;
        for (const label of all("label", group)) {
          label.hidden = !whole && !label.textContent.toLowerCase().includes(wanted);
          if (!label.hidden) shown++;
        }
        group.hidden = shown === 0;
        group.open = wanted ? shown > 0 : opened.includes(group);
      }
    });
  }
};

// wireCopies shows the buttons that copy a text. A button then says that it is copied; failed takes over if it cannot be.
const wireCopies = (from, copied, failed) => {
  for (const button of all("button[data-copy]", from)) {
    const text = document.getElementById(button.dataset.copy);
    if (!text || !navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const label = button.textContent;
      try { await navigator.clipboard.writeText(text.textContent); button.textContent = copied; } catch { failed(button, text); }
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  }
};

// A form is sent once: a second click would repeat the change.
document.addEventListener("submit", (e) => {
  if (e.target.method !== "post") return;
  if (e.target.dataset.sent) { e.preventDefault(); return; }
  e.target.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => { for (const f of all("form[data-sent]")) delete f.dataset.sent; });
