// Returns what a person might not be able to read or reach on a page; see accessible.py.
() => {
  const found = [];
  const parse = (text) => { const m = text.match(/[\d.]+/g).map(Number); return {r: m[0], g: m[1], b: m[2], a: m[3] ?? 1}; };
  const light = ({r, g, b}) => {
    const [x, y, z] = [r, g, b].map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if (color.a === 1) return color;
    }
    return {r: 255, g: 255, b: 255};
  };
  const visible = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && getComputedStyle(element).visibility === "visible";
  };
  const name = (element) => (element.getAttribute("aria-label") || element.textContent || element.getAttribute("alt") ||
    (element.labels && [...element.labels].map((one) => one.textContent).join(" ")) || "").trim();
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (text && visible(element) && !element.closest(".hidden, .skip, [hidden]")) {
      const style = getComputedStyle(element);
      const [a, b] = [light(parse(style.color)), light(behind(element))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const large = parseFloat(style.fontSize) >= 24;
      if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`);
    }
  }
  for (const element of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, img")) {
    if (!name(element)) found.push(`no name: ${element.outerHTML.slice(0, 80)}`);
    const box = element.getBoundingClientRect();
    const inline = element.tagName === "A" && getComputedStyle(element).display === "inline";
    if (visible(element) && !inline && (box.height < 24 || box.width < 24) && element.tagName !== "IMG")
      found.push(`small target ${box.width}x${box.height}: ${element.outerHTML.slice(0, 80)}`);
  }
  let before = 0;
  for (const element of document.querySelectorAll("h1, h2, h3, h4")) {
    const level = Number(element.tagName[1]);
    if (level > before + 1) found.push(`heading ${level} after ${before}: ${element.textContent}`);
    before = level;
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) found.push(`the page is ${wide} pixels too wide`);
  if (!document.title || !document.documentElement.lang) found.push("no title or language");
  return found;
}
