// Hosts the page of a tool (MCP Apps, SEP-1865): JSON-RPC by messages with the sandbox that frames it. What it asks of its
// server goes to the console, which decides; what it says is shown as text. Messages count from that frame and origin only.
(() => {
  "use strict";
  const REVISION = "2026-01-26";
  const RESERVED = "ui/notifications/sandbox-";
  const INVALID_REQUEST = -32600, METHOD_NOT_FOUND = -32601, INVALID_PARAMS = -32602, INTERNAL = -32603, DENIED = -32000;
  const READY_MS = 15000, TEARDOWN_MS = 1000;
  const MOST_PIXELS = 2000, LEAST_PIXELS = 40, FIRST_PIXELS = 160;
  const MOST_RUNNING = 16, MOST_SAID = 50, MOST_TEXT = 4000;
  const FORWARDED = new Set(["tools/call", "resources/read"]);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let running = null;

  class Refused extends Error {
    constructor(code, message) { super(message); this.code = code; }
  }

  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const isId = (value) => typeof value === "string" || Number.isInteger(value);
  const cut = (text) => text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)} …` : text;
  const visible = (value) => cut(typeof value === "string" ? value : JSON.stringify(value) ?? "").replace(
    /[^\P{C}\n\t]|[\u2028\u2029]/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
  const theme = () => dark.matches ? "dark" : "light";

  const element = (name, text, className) => {
    const made = document.createElement(name);
    made.textContent = text ?? "";
    if (className) made.className = className;
    return made;
  };

  const textsOf = (content) => (Array.isArray(content) ? content : [content]).map((block) =>
    isObject(block) && block.type === "text" ? String(block.text) : JSON.stringify(block)).join("\n");

  class Host {
    constructor(place) {
      this.place = place;
      this.origin = new URL(place.dataset.frame).origin;
      this.frame = document.createElement("iframe");
      this.frame.title = `Page of ${place.dataset.name}`;
      this.frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
      this.frame.referrerPolicy = "no-referrer";
      this.frame.src = place.dataset.frame;
      this.said = element("ul", "", "app-said");
      this.said.setAttribute("aria-label", "Messages of the page");
      this.context = null;
      this.question = element("div", "", "app-question");
      this.question.setAttribute("role", "alert");
      this.asking = null;
      this.state = "loading"; // then: loaded, answered (ui/initialize), initialized, ended
      this.requests = new Map();
      this.ended = () => {};
      this.listen = (event) => this.heard(event);
      this.recolour = () => this.tell("ui/notifications/host-context-changed", { theme: theme() });
      addEventListener("message", this.listen);
      dark.addEventListener("change", this.recolour);
      place.replaceChildren(this.question, this.frame, this.said);
      this.resize(FIRST_PIXELS);
      this.late = setTimeout(() => this.say("problem", `The sandbox at ${this.origin} does not answer. It is a port of the ` +
        "machine that the gateway runs on: where the console is reached through a tunnel, that port wants one, too."), READY_MS);
      this.told = fetch(place.dataset.address, { cache: "no-store" }).then((answer) => {
        if (!answer.ok) throw new Refused(INTERNAL, `the console answered with ${answer.status}`);
        return answer.json();
      });
      this.told.catch((error) => this.say("problem", `The page did not come: ${error.message}`));
    }

    // messages

    heard(event) {
      const message = event.data;
      if (event.source === null || event.source !== this.frame.contentWindow || event.origin !== this.origin) return;
      if (!isObject(message) || message.jsonrpc !== "2.0" || this.state === "ended") return;
      if (typeof message.method !== "string") {
        if (this.state === "ending" && message.id === "teardown") this.ended();
      } else if (message.method.startsWith(RESERVED)) {
        if (message.method === `${RESERVED}proxy-ready`) this.load();
      } else if (isId(message.id)) {
        this.answer(message);
      } else if (message.id === undefined) {
        this.notified(message.method, isObject(message.params) ? message.params : {});
      }
    }

    post(message) {
      this.frame.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, this.origin);
    }

    tell(method, params) {
      if (this.state === "initialized") this.post({ method, params });
    }

    async load() {
      clearTimeout(this.late);
      if (this.state !== "loading") return;
      this.state = "loaded";
      const told = await this.told.catch(() => null); // said already
      if (told === null) return;
      const { html, csp } = told;
      this.post({ method: `${RESERVED}resource-ready`, params: { html, csp, sandbox: this.frame.getAttribute("sandbox") } });
    }

    async answer({ id, method, params }) {
      if (this.requests.has(id) || this.requests.size >= MOST_RUNNING) {
        this.post({ id, error: { code: INVALID_REQUEST, message: "the id is in use, or too many requests are under way" } });
        return;
      }
      const stop = new AbortController();
      this.requests.set(id, stop);
      try {
        const result = await this.result(method, isObject(params) ? params : {}, stop.signal);
        if (!stop.signal.aborted) this.post({ id, result });
      } catch (error) {
        const told = error instanceof Refused ? { code: error.code, message: error.message, data: error.data }
          : { code: INTERNAL, message: "the request failed" };
        if (!stop.signal.aborted) this.post({ id, error: told });
      } finally {
        this.requests.delete(id);
      }
    }

    async result(method, params, signal) {
      if (method === "ping") return {};
      if (method === "ui/initialize") return this.initialize();
      if (this.state !== "initialized") throw new Refused(INVALID_REQUEST, "ui/initialize and ui/notifications/initialized come first");
      if (FORWARDED.has(method)) return this.forward(method, params, signal);
      switch (method) {
        case "ui/open-link": return this.openLink(params, signal);
        case "ui/message":
          if (params.role !== "user" || params.content === undefined) throw new Refused(INVALID_PARAMS, "a role and content are expected");
          this.say("It says to the conversation, as the user", textsOf(params.content));
          return {};
        case "ui/update-model-context":
          this.update(params);
          return {};
        case "ui/request-display-mode": return { mode: "inline" };
        default: throw new Refused(METHOD_NOT_FOUND, "Method not found");
      }
    }

    notified(method, params) {
      switch (method) {
        case "ui/notifications/initialized":
          if (this.state === "answered") this.begin();
          break;
        case "ui/notifications/size-changed":
          if (Number.isFinite(params.height)) this.resize(params.height);
          break;
        case "notifications/message":
          this.say(`Log, ${visible(params.level)}`, params.data);
          break;
        case "notifications/cancelled":
          this.requests.get(params.requestId)?.abort();
          break;
      }
    }

    // the life of the page

    async initialize() {
      if (this.state !== "loaded" && this.state !== "answered") throw new Refused(INVALID_REQUEST, "it is initialized");
      const { tool, csp } = await this.told;
      this.state = "answered";
      return {
        protocolVersion: REVISION,
        hostInfo: { name: "toolweave console", version: this.place.dataset.version },
        hostCapabilities: {
          openLinks: {}, serverTools: {}, serverResources: {}, logging: {},
          message: { text: {} }, updateModelContext: { text: {}, structuredContent: {} },
          sandbox: { permissions: {}, csp },
        },
        hostContext: {
          toolInfo: { tool }, theme: theme(), displayMode: "inline", availableDisplayModes: ["inline"],
          containerDimensions: { width: this.frame.clientWidth, maxHeight: MOST_PIXELS },
          locale: navigator.language, timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
          userAgent: "toolweave console", platform: "web",
          deviceCapabilities: { touch: matchMedia("(any-pointer: coarse)").matches, hover: matchMedia("(any-hover: hover)").matches },
        },
      };
    }

    async begin() {
      this.state = "initialized";
      const told = await this.told;
      this.tell("ui/notifications/tool-input", { arguments: told.arguments });
      this.tell("ui/notifications/tool-result", told.result);
    }

    end() {
      if (this.state === "ended" || this.state === "ending") return;
      const told = this.state === "initialized";
      if (told) this.post({ id: "teardown", method: "ui/resource-teardown", params: { reason: "the tool is called again" } });
      this.state = "ending";
      this.ended = () => {
        this.state = "ended";
        clearTimeout(this.late);
        removeEventListener("message", this.listen);
        dark.removeEventListener("change", this.recolour);
        for (const stop of this.requests.values()) stop.abort();
        this.place.replaceChildren();
      };
      if (told) setTimeout(() => this.ended(), TEARDOWN_MS); else this.ended();
    }

    resize(height) {
      const border = this.frame.offsetHeight - this.frame.clientHeight;
      this.frame.style.height = `${Math.min(MOST_PIXELS, Math.max(LEAST_PIXELS, Math.ceil(height))) + border}px`;
    }

    // what it asks for

    async forward(method, params, signal) {
      const body = new URLSearchParams({ csrf: this.place.dataset.csrf, message: JSON.stringify({ method, params }) });
      const answer = await fetch(this.place.dataset.address, { method: "POST", body, signal });
      if (!answer.ok) throw new Refused(INTERNAL, `the console answered with ${answer.status}`);
      const { result, error } = await answer.json();
      if (error === undefined) return result;
      const refused = new Refused(error.code, error.message);
      refused.data = error.data;
      throw refused;
    }

    openLink(params, signal) {
      let url = null;
      try { url = new URL(params.url); } catch { /* told below */ }
      if (url === null || !["http:", "https:"].includes(url.protocol)) throw new Refused(DENIED, "Invalid URL");
      if (this.asking !== null) throw new Refused(DENIED, "another question is open");
      return new Promise((resolve, reject) => {
        const done = (settle) => () => {
          if (this.asking !== url) return; // it is settled
          this.asking = null;
          this.question.replaceChildren();
          settle();
        };
        const button = (text, settle, className) => {
          const made = element("button", text, className);
          made.type = "button";
          made.addEventListener("click", done(settle));
          return made;
        };
        const denied = () => reject(new Refused(DENIED, "Link opening denied by user"));
        signal.addEventListener("abort", done(denied));
        this.asking = url;
        this.question.replaceChildren(
          element("p", "The page wants to open this address in another tab:"), element("code", visible(url.href)),
          button("Open it", () => { window.open(url.href, "_blank", "noopener,noreferrer"); resolve({}); }),
          button("Refuse", denied, "quiet"));
      });
    }

    update(params) {
      const parts = [];
      if (params.content !== undefined) parts.push(textsOf(params.content));
      if (params.structuredContent !== undefined) parts.push(JSON.stringify(params.structuredContent));
      this.context?.remove(); // each one takes the place of that before
      this.context = this.say("A model would be told", parts.join("\n"));
    }

    say(who, text) {
      const item = element("li");
      item.append(element("strong", who === "problem" ? "Not shown" : visible(who)), ": ", element("span", visible(text)));
      if (who === "problem") item.className = "bad";
      this.said.append(item);
      while (this.said.children.length > MOST_SAID) this.said.firstChild.remove();
      return item;
    }
  }

  const start = () => {
    const place = document.getElementById("app");
    if (place !== null && place !== running?.place) running = new Host(place);
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target?.id === "outcome") running?.end();
  });
  document.addEventListener("htmx:afterSwap", start);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
