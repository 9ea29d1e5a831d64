// Draws every figure of the page in the colours of the style sheet, again whenever light turns to dark.
"use strict";
(() => {
  const root = document.documentElement;
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;

  // "var(--name)" or "var(--name)/alpha" as the browser resolves it now
  const token = /^var\((--[\w-]+)\)(?:\/([\d.]+))?$/;
  const colour = (name, alpha) => {
    probe.style.color = `var(${name})`;
    const rgb = getComputedStyle(probe).color;
    return alpha ? rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`) : rgb;
  };
  const resolve = (value) => {
    if (typeof value === "string") {
      const found = token.exec(value);
      return found ? colour(found[1], found[2]) : value;
    }
    if (Array.isArray(value)) return value.map(resolve);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, resolve(child)]));
  };

  const charts = [...document.querySelectorAll(".chart")].map((place) => {
    const source = place.querySelector("script");
    const figure = JSON.parse(source.textContent);
    source.remove();
    return [place, figure];
  });
  const draw = async () => {
    for (const [place, figure] of charts) {
      const { data, layout } = resolve(figure);
      await Plotly.react(place, data, layout, { displayModeBar: false });
    }
    root.dataset.drawn = charts.length;
  };

  const fit = new ResizeObserver((changes) => {
    for (const { target } of changes) if (target.layout) Plotly.Plots.resize(target);
  });
  for (const [place] of charts) fit.observe(place);

  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.style.colorScheme || (dark.matches ? "dark" : "light");
    root.style.colorScheme = now === "dark" ? "light" : "dark";
    draw();
  });
  draw();
})();
