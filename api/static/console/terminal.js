"use strict";
// A terminal on a WebSocket: bytes are what is typed and shown, texts say how large it is and that it has ended.

{
  const place = document.getElementById("terminal");
  const end = document.getElementById("terminal-end");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const terminal = new Terminal({ cursorBlink: true, scrollback: 5000, screenReaderMode: false, theme: colours() });
  const fit = new FitAddon.FitAddon();
  let socket;

  terminal.loadAddon(fit);
  terminal.open(place);
  terminal.textarea.setAttribute("aria-label", place.dataset.label);
  terminal.textarea.setAttribute("aria-describedby", "terminal-keys");
  // Every other key, Tab too, is for the program that runs in it.
  terminal.attachCustomKeyEventHandler((event) => {
    if (!(event.ctrlKey && event.shiftKey && event.code === "KeyE")) return true;
    event.preventDefault();
    if (event.type === "keydown") document.getElementById("terminal-back").focus();
    return false;
  });
  fit.fit();
  dark.addEventListener("change", () => (terminal.options.theme = colours()));
  new ResizeObserver(() => fit.fit()).observe(place);
  terminal.onResize(({ rows, cols }) => say({ type: "resize", rows, cols }));
  const encoder = new TextEncoder();
  terminal.onData((text) => send(encoder.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  end.querySelector("button").addEventListener("click", open);
  open();

  function open() {
    const { address, project, container, command } = place.dataset;
    const asked = { project, container, command, rows: terminal.rows, cols: terminal.cols, tty: "true" };
    const url = new URL(`${address}?${new URLSearchParams(asked)}`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    end.hidden = true;
    terminal.reset();
    let told = "";
    socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      fit.fit();
      terminal.focus();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") return terminal.write(new Uint8Array(data));
      const frame = JSON.parse(data);
      if (frame.type === "exit") told = end.dataset.ended;
      if (frame.type === "error") told = frame.reason;
    };
    socket.onclose = () => {
      end.querySelector("span").textContent = told || end.dataset.lost;
      end.hidden = false;
    };
  }

  function send(bytes) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(bytes);
  }

  function say(frame) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
  }

  function colours() {
    const { backgroundColor, color } = getComputedStyle(place);
    return { background: backgroundColor, foreground: color, cursor: color, selectionBackground: "#7aa7ff66" };
  }
}
