// Improves the portal's pages, which work without it: live parts, times of the reader's zone, copying, and the frame that a page stands in.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const texts = document.body.dataset;
  const lang = document.documentElement.lang;

  const wire = (from) => {
    for (const time of all("time[datetime]", from)) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const here = at.toLocaleString(lang, { dateStyle: "medium", timeStyle: "medium" });
      if (time.matches(".at")) {
        time.title = time.textContent;
        time.textContent = here;
      } else {
        time.title = here;
      }
    }
    for (const box of all("input[data-filter]", from)) { // hides the choices that lack what is typed
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
    for (const button of all("button[data-copy]", from)) {
      const of = document.getElementById(button.dataset.copy);
      if (!of || !navigator.clipboard) continue;
      button.hidden = false;
      button.addEventListener("click", async () => {
        const label = button.textContent;
        try { await navigator.clipboard.writeText(of.textContent); button.textContent = texts.copied; } catch { getSelection().selectAllChildren(of); }
        setTimeout(() => { button.textContent = label; }, 2000);
      });
    }
  };
  wire(document);

  // --- live parts: the server sends the part anew when it has changed -------------------------------
  const live = $("#live");
  let source = null;
  const stop = () => { if (source) source.close(); source = null; };
  const busy = () => {
    const selection = getSelection();
    return live.contains(document.activeElement) && document.activeElement !== document.body
      || selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  };
  let waiting = null;
  const take = (html) => {
    waiting = busy() ? html : null;
    if (waiting !== null) return;
    live.innerHTML = html; // made by the server's templates, which escape whatever is stored
    wire(live);
  };
  const follow = () => {
    stop();
    if (document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("live", (e) => take(e.data));
    source.addEventListener("end", () => {
      stop();
      $("#live-state").textContent = texts.stopped;
      if (window.parent !== window) location.reload(); // the page that says so tells the parent
    });
  };
  if (live && $("#live-state") && window.EventSource) {
    document.addEventListener("visibilitychange", follow);
    window.addEventListener("pagehide", stop);
    document.addEventListener("focusout", () => { setTimeout(() => { if (waiting !== null) take(waiting); }, 0); });
    follow();
  }

  // A form is sent once: a second click would repeat the change.
  document.addEventListener("submit", (e) => {
    if (e.target.method !== "post") return;
    if (e.target.dataset.sent) { e.preventDefault(); return; }
    e.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => { for (const f of all("form[data-sent]")) delete f.dataset.sent; });

  // --- in a frame: the element that shows it says hello, from an origin that may show it -------------
  if (window.parent === window) return;
  const origins = texts.parents.split(" ").filter(Boolean);
  let told = -1;
  const tell = (origin) => {
    const height = Math.ceil(document.documentElement.getBoundingClientRect().height);
    if (height !== told) window.parent.postMessage({ type: "everpost:height", height }, origin);
    told = height;
  };
  window.addEventListener("message", (e) => {
    if (e.source !== window.parent || !origins.includes(e.origin) || !e.data || e.data.type !== "everpost:hello") return;
    told = -1;
    tell(e.origin);
    new ResizeObserver(() => tell(e.origin)).observe(document.documentElement);
    const ended = $("#ended");
    if (ended) window.parent.postMessage({ type: "everpost:ended", refreshURL: ended.dataset.refresh || "" }, e.origin);
  });
  const auto = $("form[data-auto]");
  if (auto) auto.requestSubmit(); // a preview of a link shows no frame
})();
