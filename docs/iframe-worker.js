// Search from a disk: browsers start no worker from file://, so its script runs in a hidden frame instead.
// The theme looks for the class by this name. Messages must wait until the frame has its script.
(() => {
  if (location.protocol !== "file:") return
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><meta charset=utf-8><body>")
      inside.document.close()
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const load = source => new Promise((loaded, failed) => {
        const script = inside.document.createElement("script")
        Object.assign(script, { src: source, onload: loaded, onerror: failed })
        inside.document.body.appendChild(script)
      })
      inside.importScripts = (...sources) => sources.reduce((last, source) => last.then(() => load(source)), Promise.resolve())
      this.ready = load(url)
      this.inside = inside
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    set onmessage(heard) { this.addEventListener("message", heard) }
  }
  window.Worker = window.IFrameWorker
})()
