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
    const long = () => figure.dataset.hours > 24;
    const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(long() ? 5 : 11, 16).replace("T", " ");
    const line = { stroke: ink, grid: { stroke: style.borderTopColor, width: 1 }, ticks: { stroke: style.borderTopColor } };
    const gpus = figure.dataset.labels && JSON.parse(figure.dataset.labels);
    const moment = { label: figure.dataset.time, value: (_, at) => (at ? clock(at) : "–") };
    const moments = { ...line, space: () => (long() ? 90 : 50), values: (_, all) => all.map(clock) };
    const points = { show: "dots" in figure.dataset };
    if (gpus) {
      return {
        width: canvas.clientWidth,
        height: HEIGHT,
        scales: { y: { range: (_, __, most) => [0, (most || 1) * 1.1] } },
        axes: [moments, { ...line, size: 50 }],
        series: [moment, ...gpus.map((label, number) => ({ label, width: 2, stroke: `hsl(${210 + number * 137.5} 60% 52%)`, points, spanGaps: true }))],
      };
    }
    return {
      width: canvas.clientWidth,
      height: HEIGHT,
      legend: { show: true, live: true },
      scales: { memory: { range: (_, __, most) => [0, (most || 1) * 1.1] }, busy: { range: [0, 100] } },
      axes: [
        moments,
        { ...line, scale: "memory", size: 60 },
        { ...line, scale: "busy", side: 1, grid: { show: false } },
      ],
      series: [
        moment,
        { label: figure.dataset.memory, scale: "memory", stroke: shade("--accent"), width: 2, points },
        { label: figure.dataset.busy, scale: "busy", stroke: shade("--good"), width: 1.5, dash: [4, 3], points },
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
