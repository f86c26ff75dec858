// Drawing: codes as bars, and result cards.

export function element(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

export function photo(url, alt) {
  return element("img", { src: url, alt, loading: "lazy", decoding: "async" });
}

// Draw a code as bars, 64 per row: tall for one, short for zero. Bits that differ from the query are
// a separate shape and have a dot below, so that they are not marked by color alone.
export function barcode(code, queryCode, length) {
  const bits = bitsOf(code, length);
  const queryBits = bitsOf(queryCode, length);
  const shapes = { agree: "", differ: "", marks: "" };
  bits.forEach((bit, place) => {
    const x = place % 64;
    const y = 16 * Math.floor(place / 64);
    const agrees = bit === queryBits[place];
    const bar = bit ? `M${x} ${y}h.7v11h-.7z` : `M${x} ${y + 7}h.7v4h-.7z`;
    shapes[agrees ? "agree" : "differ"] += bar;
    if (!agrees) shapes.marks += `M${x} ${y + 12.5}h.7v2h-.7z`;
  });
  const width = Math.min(64, length) - 0.3;
  const rows = Math.ceil(length / 64);
  const svg = shape("svg", {
    class: "barcode",
    viewBox: `0 0 ${width} ${16 * rows - 1}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  if (rows > 1) svg.style.height = `${18 * rows}px`;
  for (const [name, d] of Object.entries(shapes)) svg.append(shape("path", { class: name, d }));
  return svg;
}

function bitsOf(code, length) {
  const bits = [];
  for (const digit of code) {
    const value = parseInt(digit, 16);
    for (let place = 3; place >= 0; place -= 1) bits.push((value >> place) & 1);
  }
  return bits.slice(0, length);
}

function shape(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Create the card of a result: a button that starts a search by it and, if there is a photo, a link
// that opens it. Without a query code, distance and agreement are not shown.
export function card(result, { bits, queryCode, onChoose }) {
  const compared = queryCode !== null;
  const agreement = `${bits - result.distance} of ${bits} bits agree`;
  const labels = result.labels.join(", ");
  const description = [`Search by ${result.name}`];
  if (compared) description.push(`distance ${result.distance}, ${agreement}`);
  if (labels) description.push(`labels: ${labels}`);

  const button = element("button", { type: "button", className: "card", ariaLabel: description.join("; ") });
  button.dataset.id = result.id;
  button.addEventListener("click", () => onChoose(result));
  if (result.has_picture) button.append(frame(result));
  const shortName = result.name.split("/").at(-1) || result.name;
  const line = element("span", { className: "line" });
  line.append(element("span", { className: "name", textContent: shortName, title: result.name }));
  if (compared) {
    const title = "distance in bits";
    line.append(element("span", { className: "distance", textContent: result.distance, title }));
  }
  const more = element("span", { className: "more" });
  more.append(
    element("span", { className: "card-labels", textContent: labels || "\u00a0" }),
    element("span", { className: "agreement", textContent: agreement }),
  );
  button.append(barcode(result.code, queryCode ?? result.code, bits), line, more);

  const item = element("li", { className: "result" });
  item.append(button);
  if (result.has_picture) item.append(openLink(result));
  return item;
}

function frame(result) {
  const node = element("span", { className: "frame" });
  const image = photo(`/api/thumbnail/${result.id}`, result.name);
  image.addEventListener("error", () => {
    node.classList.add("missing");
    node.append("cannot be shown");
    node.title = "The photo is missing, too large for a preview, or outside the indexed folders.";
  });
  node.append(image);
  return node;
}

function openLink(result) {
  return element("a", {
    className: "open",
    href: `/api/picture/${result.id}`,
    target: "_blank",
    rel: "noopener",
    textContent: "\u2197",
    ariaLabel: `Open ${result.name}`,
  });
}
