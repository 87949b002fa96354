"""Contrast of the words in pictures, where axe does not look: what each stands on at its left, middle and right.

A word with an edge of its own, painted under it and three pixels wide or more, stands on that.
"""
import json

LEAST = 4.5
DARK = ["rgba(255, 255, 255, 1)", "#111111"]   # ink and ground of JupyterLab Dark
UNREADABLE = """([root, ink_and_ground]) => {
  const ink = (color) => {                       // [red, green, blue, opacity] of any CSS color
    const part = color.match(/[\\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return part.length < 4 ? [...part.slice(0, 3), 1] : part;
  };
  const over = (top, below) => below.map((value, i) => top[i] * top[3] + value * (1 - top[3]));
  const light = (color) => color.slice(0, 3).map(value => value / 255)
    .map(value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
  const opacity = (node) => { let all = 1; for (; node && node.tagName !== "svg"; node = node.parentNode) all *= getComputedStyle(node).opacity; return all; };
  const fill = (node) => {
    const style = getComputedStyle(node), [red, green, blue, alpha] = style.fill === "none" ? [0, 0, 0, 0] : ink(style.fill);
    return [red, green, blue, alpha * style.fillOpacity * opacity(node)];
  };
  const page = (node) => {                       // the first of the elements behind it that has a color
    for (; node; node = node.parentElement) { const color = ink(getComputedStyle(node).backgroundColor); if (color[3] > 0) return color; }
    return [255, 255, 255, 1];
  };
  const covers = (shape, x, y) => {
    const frame = shape.getScreenCTM();
    return frame && shape.isPointInFill(new DOMPoint(x, y).matrixTransform(frame.inverse()));
  };
  const other = document.createElement("style"), found = [];
  if (ink_and_ground) {                          // as another theme would have it: put in and taken out before anything is painted
    const [its_ink, ground] = ink_and_ground;
    other.textContent = `.kv-card, .kv-picture { --kv-ink: ${its_ink} !important; --kv-ground: ${ground} !important; }`;
    document.head.append(other);
  }
  let words = 0;
  for (const svg of root.querySelectorAll(".kv-drawing svg")) {
    const shapes = [...svg.querySelectorAll("path, rect, circle")].map(node => [node, fill(node)]).filter(([, color]) => color[3] > 0);
    for (const text of svg.querySelectorAll("text")) {
      const color = fill(text), { left, right, top, bottom, width } = text.getBoundingClientRect();
      if (!width || !color[3] || !text.textContent.trim()) continue;
      words += 1;
      const { paintOrder, stroke, strokeWidth } = getComputedStyle(text);
      const edge = paintOrder.startsWith("stroke") && stroke !== "none" && parseFloat(strokeWidth) >= 3 ? [ink(stroke)] : [];
      for (const x of [left + 1, (left + right) / 2, right - 1]) {
        const below = shapes.filter(([node]) => node.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)
          .filter(([node]) => covers(node, x, (top + bottom) / 2)).map(([, each]) => each).concat(edge)
          .reduce((under, each) => over(each, under), page(svg));
        const ratio = contrast(over(color, below), below);
        if (ratio < %s) { found.push(`${text.textContent}: ${ratio.toFixed(2)}`); break; }
      }
    }
  }
  other.remove();
  return [words, found];
}""".replace("%s", str(LEAST))


def unreadable(root, ink_and_ground=None):
    """(how many words were looked at, [word: ratio] of those below LEAST), in the page's theme or with another ink and ground."""
    return root.evaluate(f"root => ({UNREADABLE})([root, {json.dumps(ink_and_ground)}])")
