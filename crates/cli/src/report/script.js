"use strict";
// Read-outs under the pointer. The page is whole without them.
(() => {
  const tip = document.getElementById("tip");
  const line = (text, tag, cls) => {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = cls || "";
    return element;
  };
  const show = (event, lines) => {
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const right = event.clientX + 16 + box.width < innerWidth;
    tip.style.left = Math.max(6, right ? event.clientX + 16 : event.clientX - 16 - box.width) + "px";
    tip.style.top = Math.max(6, Math.min(event.clientY + 14, innerHeight - box.height - 6)) + "px";
  };
  const hide = () => { tip.hidden = true; };

  // The point of a series nearest to a step; points are in order.
  const nearest = (points, step) => {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < step) low = middle + 1; else high = middle;
    }
    const before = points[Math.max(0, low - 1)];
    return step - before[0] < points[low][0] - step ? before : points[low];
  };
  const figure = (y, percent) => {
    if (y === null) return "not finite";
    if (percent) return (y * 100).toFixed(2) + " %";
    const size = Math.abs(y);
    if (size >= 1e3 && size < 1e9) return Math.round(y).toLocaleString("en");
    return size !== 0 && (size < 1e-3 || size >= 1e9) ? y.toExponential(3) : y.toPrecision(4);
  };

  for (const source of document.querySelectorAll('script[type="application/json"]')) {
    const data = JSON.parse(source.textContent);
    const plot = source.parentElement;
    const guide = line("", "div", "guide");
    guide.hidden = true;
    plot.append(guide);
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const step = data.low + share * (data.high - data.low);
      const lines = [line("step " + Math.max(0, Math.round(step)).toLocaleString("en"), "strong")];
      for (const series of data.series) {
        if (!series.points.length) continue;
        const [at, y] = nearest(series.points, step);
        const far = Math.abs(at - step) > (data.high - data.low) / 100;
        const where = far ? ", step " + at.toLocaleString("en") : "";
        lines.push(line(series.name + " " + figure(y, data.percent) + where, "div", series.class));
      }
      guide.hidden = false;
      guide.style.left = share * 100 + "%";
      show(event, lines);
    });
    plot.addEventListener("pointerleave", () => { guide.hidden = true; hide(); });
  }

  // The plan's titles become read-outs that come at once and also at a tap.
  for (const plot of document.querySelectorAll(".plan .plot")) {
    const texts = new Map();
    for (const title of plot.querySelectorAll("rect > title")) {
      texts.set(title.parentElement, title.textContent);
      title.remove();
    }
    let on = null;
    const mark = (rect) => {
      on?.classList.remove("on");
      on = rect;
      on?.classList.add("on");
    };
    const read = (event) => {
      const rect = event.target.closest("rect");
      mark(rect);
      if (!rect) return hide();
      const [name, ...rest] = texts.get(rect).split("\n");
      show(event, [line(name, "strong"), ...rest.map((text) => line(text, "div", "text"))]);
    };
    plot.addEventListener("pointermove", read);
    plot.addEventListener("pointerdown", read);
    plot.addEventListener("pointerleave", () => { mark(null); hide(); });
  }
  addEventListener("scroll", hide, { passive: true });
})();
