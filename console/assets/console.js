// Improves pages that work without it: keyboard, live parts, selecting rows. It asks nobody but this console. shared.js stands before it.
(() => {
  // --- live parts: the server sends the part anew when it has changed -------------------------------
  const live = $("#live");
  const pause = $("#pause");
  const state = $("#live-state");
  const pauseKey = "everpost.console.paused";
  let source = null;
  let waiting = null; // a part that came while the reader was in it

  const remember = (value) => {
    try { sessionStorage.setItem(pauseKey, value); } catch { /* storage is switched off */ }
  };
  const remembered = () => {
    try { return sessionStorage.getItem(pauseKey) === "yes"; } catch { return false; }
  };

  // busy reports whether replacing the part would take something from the reader's hands.
  const busy = () => {
    if (live.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return true;
    if (all("input[type=checkbox]:checked", live).length > 0) return true;
    if ($("dialog[open]")) return true;
    const selection = getSelection();
    return selection && !selection.isCollapsed && live.contains(selection.anchorNode);
  };

  const replace = (html) => {
    const opened = all("details[open][id]", live).map((d) => d.id);
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const again = focused && (focused.id ? "#" + CSS.escape(focused.id)
      : focused.getAttribute("href") ? 'a[href="' + CSS.escape(focused.getAttribute("href")) + '"]' : null);
    const row = current();
    const key = row && row.dataset.row;
    live.innerHTML = html; // made by the server's templates, which escape whatever is stored
    for (const id of opened) { const d = document.getElementById(id); if (d) d.open = true; }
    if (again) { const e = $(again, live); if (e) e.focus({ preventScroll: true }); }
    if (key) { const r = rows().find((r) => r.dataset.row === key); if (r) r.classList.add("here"); }
    wire(live);
  };

  const take = (html) => {
    waiting = null;
    if (busy()) { waiting = html; return; }
    replace(html);
  };

  const stop = () => {
    if (source) source.close();
    source = null;
  };

  const follow = () => {
    stop();
    if (!live || remembered() || document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("live", (e) => take(e.data));
    source.addEventListener("end", () => {
      stop();
      state.textContent = "No updates: load the page again.";
    });
    source.onopen = () => { state.textContent = ""; };
    source.onerror = () => {
      state.textContent = source.readyState === EventSource.CLOSED ? "No updates: load the page again." : "Connecting…";
    };
  };

  const showPause = () => {
    const paused = remembered();
    pause.hidden = false;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    state.textContent = paused ? "Updates are paused." : "";
  };

  const toggle = () => {
    remember(remembered() ? "no" : "yes");
    showPause();
    follow();
  };

  if (live && pause && window.EventSource) {
    pause.addEventListener("click", toggle);
    document.addEventListener("visibilitychange", follow);
    window.addEventListener("pagehide", stop);
    document.addEventListener("focusout", () => { if (waiting !== null) setTimeout(() => { if (waiting !== null) take(waiting); }, 0); });
    showPause();
    follow();
  }

  // --- keyboard -------------------------------------------------------------------------------------
  const rows = () => all("tr[data-row]");
  const current = () => $("tr.here");

  const move = (step) => {
    const list = rows();
    if (list.length === 0) return;
    const at = list.indexOf(current());
    const next = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + step))];
    list.forEach((r) => r.classList.toggle("here", r === next));
    const link = $("a[href]", next);
    if (link) link.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  // press uses the button or link that a page marks for a key: that of the row first.
  const press = (key) => {
    const mark = '[data-key="' + key + '"]';
    const row = current();
    const target = (row && $(mark, row)) || $(mark);
    if (target) target.click();
    return target !== null;
  };

  const help = $("#help");
  const opener = $("#help-open");
  if (opener && help) {
    opener.hidden = false;
    opener.addEventListener("click", () => help.showModal());
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing || $("dialog[open]")) return;
    const field = e.target.closest("input, select, textarea, [contenteditable]");
    if (field) {
      if (e.key === "Escape") field.blur();
      if (!field.matches("input[type=checkbox]") || e.key === " ") return;
    }
    switch (e.key) {
      case "/": {
        const find = $("#find");
        if (!find) return;
        find.focus();
        find.select();
        break;
      }
      case "j": move(1); break;
      case "k": move(-1); break;
      case "r": if (!press("r")) return; break;
      case "p": if (!live || !pause || pause.hidden) return; toggle(); break;
      case "?": if (!help) return; help.showModal(); break;
      default: return;
    }
    e.preventDefault();
  });

  // --- forms and small things -----------------------------------------------------------------------
  // wire adds what needs an element: called again for a part that was replaced.
  const wire = (from) => {
    for (const time of all("time[datetime]", from)) { // in the reader's zone; UTC in the title
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const here = at.toLocaleString([], { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
        second: "2-digit", hourCycle: "h23", timeZoneName: "short" });
      if (time.matches(".at")) {
        time.title += " · " + time.textContent;
        time.textContent = here;
      } else {
        time.title = here + " · " + time.title;
      }
    }
    for (const box of all("input[data-all]", from)) { // checks all boxes of its table
      box.closest("label, th").hidden = false;
      box.addEventListener("change", () => {
        for (const other of all('input[type=checkbox][name="' + CSS.escape(box.dataset.all) + '"]', box.closest("form, table"))) other.checked = box.checked;
      });
    }
    wireChoices(from);
    wireCopies(from, "Copied", (button) => { button.textContent = "Select and copy by hand"; });
  };
  wire(document);
  const zone = $("#zone");
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && here !== "UTC") zone.textContent = "times are those of " + here + "; in sentences, charts and what you type UTC";

  // --- suggestions of the boxes in the header ----------------------------------------------------------------
  for (const list of all("datalist[data-from]")) {
    const find = $('input[list="' + list.id + '"]');
    let timer = 0;
    let asked = null;
    find.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        if (asked) asked.abort();
        asked = new AbortController();
        try {
          const answer = await fetch(list.dataset.from + "?q=" + encodeURIComponent(find.value), { signal: asked.signal, headers: { Accept: "application/json" } });
          if (!answer.ok) return;
          list.replaceChildren(...(await answer.json()).map((text) => { const o = document.createElement("option"); o.value = text; return o; }));
        } catch { /* the next letter asks again */ }
      }, 150);
    });
  }
})();
