// Improves the portal's pages, which work without it: live parts, times of the reader's zone, copying, and the frame that a page stands in.
// shared.js stands before it.
(() => {
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
    wireChoices(from);
    wireCopies(from, texts.copied, (_, text) => getSelection().selectAllChildren(text));
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
  // states is what the part says of how things are: states, attempts and what a list has. Times change without them.
  const states = () => all(".chip, .dot, tbody a", live).map((e) => e.className + e.textContent).join("\n");
  let waiting = null;
  const take = (html) => {
    waiting = busy() ? html : null;
    if (waiting !== null) return;
    const before = states();
    live.innerHTML = html; // made by the server's templates, which escape whatever is stored
    wire(live);
    const said = $("#flash");
    if (said && states() !== before) said.remove(); // it spoke of how things were
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
