"use strict";
// Plots of what a figure has as its points: seconds, memory in MiB, use in percent. The same stands in its caption.

{
  const HEIGHT = 180;
  const plots = new WeakMap();

  const draw = () => {
    for (const figure of document.querySelectorAll("figure.plot")) show(figure);
  };
  document.addEventListener("htmx:afterSettle", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const canvas of document.querySelectorAll("figure.plot .canvas")) canvas.replaceChildren();
    draw();
  });
  draw();

  function show(figure) {
    const canvas = figure.querySelector(".canvas");
    const data = JSON.parse(figure.dataset.points);
    const plot = canvas.firstChild && plots.get(canvas);
    if (plot) return plot.setData(data);
    const made = new uPlot(options(figure, canvas), data, canvas);
    plots.set(canvas, made);
    new ResizeObserver(() => made.setSize({ width: canvas.clientWidth, height: HEIGHT })).observe(canvas);
  }

  function options(figure, canvas) {
    const style = getComputedStyle(figure);
    const colour = (name) => style.getPropertyValue(name);
    const ink = style.color;
    const line = { stroke: ink, grid: { stroke: style.borderTopColor, width: 1 }, ticks: { stroke: style.borderTopColor } };
    return {
      width: canvas.clientWidth,
      height: HEIGHT,
      legend: { show: true, live: true },
      scales: { memory: { range: (_, __, most) => [0, (most || 1) * 1.1] }, busy: { range: [0, 100] } },
      axes: [line, { ...line, scale: "memory", size: 60 }, { ...line, scale: "busy", side: 1, grid: { show: false } }],
      series: [
        {},
        { label: figure.dataset.memory, scale: "memory", stroke: shade("--accent"), width: 2, points: { show: false } },
        { label: figure.dataset.busy, scale: "busy", stroke: shade("--good"), width: 1.5, dash: [4, 3], points: { show: false } },
      ],
    };

    // the canvas knows no light-dark()
    function shade(name) {
      const probe = document.createElement("span");
      probe.style.color = colour(name);
      figure.append(probe);
      const found = getComputedStyle(probe).color;
      probe.remove();
      return found;
    }
  }
}
