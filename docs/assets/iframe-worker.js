/* Search without a server.
 *
 * A page that is read from the file system may not start a worker, and the theme searches in one.
 * There, this class takes the worker's place: it runs the worker's script in a hidden frame, and
 * passes messages between the two. On a server, the browser's own workers are used.
 */
"use strict";

(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    #frame;
    #ready;

    constructor(url) {
      super();
      this.#frame = document.createElement("iframe");
      this.#frame.hidden = true;
      this.#frame.title = "search";
      this.#ready = new Promise((resolve) => {
        this.#frame.addEventListener("load", () => this.#start(url, resolve), { once: true });
      });
      document.body.append(this.#frame);
    }

    /* A frame without an address is of the page's own origin: its window can be reached. */
    #start(url, resolve) {
      const inner = this.#frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...scripts) => Promise.all(scripts.map((each) => run(inner, each)));
      run(inner, String(url)).then(() => resolve(inner));
    }

    postMessage(data) {
      this.#ready.then((inner) => {
        inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.#frame.remove();
    }
  }

  function run(inner, url) {
    return new Promise((resolve, reject) => {
      const script = inner.document.createElement("script");
      script.addEventListener("load", resolve);
      script.addEventListener("error", () => reject(new Error(`${url} cannot be read`)));
      script.src = url;
      inner.document.head.append(script);
    });
  }

  window.Worker = FrameWorker;
})();
