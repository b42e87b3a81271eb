// <everpost-portal src="LINK"> shows a portal in a frame that is as high as its page. LINK is a link of POST …/console-links with
// "embed": true. When the session has ended it sends the event "ended"; event.detail.refreshURL is the link's refresh_url.
"use strict";
customElements.define("everpost-portal", class extends HTMLElement {
  static observedAttributes = ["src", "title"];

  #frame = null;
  #origin = "";

  #hear = (e) => {
    if (!this.#frame || e.source !== this.#frame.contentWindow || e.origin !== this.#origin || !e.data) return;
    if (e.data.type === "everpost:height" && Number.isFinite(e.data.height)) {
      this.#frame.style.height = Math.min(Math.max(e.data.height, 100), 50000) + "px";
    } else if (e.data.type === "everpost:ended") {
      this.dispatchEvent(new CustomEvent("ended", { bubbles: true, detail: { refreshURL: String(e.data.refreshURL || "") } }));
    }
  };

  connectedCallback() {
    window.addEventListener("message", this.#hear);
    this.#show();
  }

  disconnectedCallback() {
    window.removeEventListener("message", this.#hear);
    if (this.#frame) this.#frame.remove();
    this.#frame = null;
  }

  attributeChangedCallback(name, before, after) {
    if (!this.isConnected || before === after) return;
    if (name === "src") this.#show();
    else if (this.#frame) this.#frame.title = after || "Webhooks";
  }

  #show() {
    let link = null;
    try { link = new URL(this.getAttribute("src") || ""); } catch { return; }
    if (link.protocol !== "https:" && link.protocol !== "http:") return;
    this.#origin = link.origin;
    if (this.#frame) this.#frame.remove();
    const frame = document.createElement("iframe");
    frame.title = this.getAttribute("title") || "Webhooks";
    frame.allow = "clipboard-write " + link.origin;
    Object.assign(frame.style, { display: "block", width: "100%", height: "600px", border: "0", colorScheme: "normal" });
    // Each page of the portal is told who shows it, and answers with its height.
    frame.addEventListener("load", () => frame.contentWindow.postMessage({ type: "everpost:hello" }, this.#origin));
    frame.src = link.href;
    this.#frame = frame;
    this.append(frame);
  }
});
