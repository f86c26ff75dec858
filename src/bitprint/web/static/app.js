// The page: a query (a picture, an item or a code), what the server found, and how alike they are.

import { barcode, card, element, picture } from "./draw.js";

const $ = (selector) => document.querySelector(selector);
const form = $("#search");
const results = $("#results");
const number = new Intl.NumberFormat("en");

let info = null;
let running = null; // the search in flight, and what it was asked
const queries = []; // every query of this visit, so that Back returns to uploads as well
const visit = performance.timeOrigin; // the history outlives a reload, the queries do not
let current = null;

// Talking to the server

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({ detail: `it answered ${response.status}` }));
  const error = new Error(sentence(said.detail));
  error.status = response.status;
  throw error;
}

function sentence(text) {
  const full = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(full) ? full : `${full}.`;
}

function requestFor(query) {
  const options = chosenOptions();
  if (query.file) {
    const body = new FormData();
    for (const [name, value] of Object.entries(options)) body.append(name, value);
    body.append("picture", query.file);
    return { method: "POST", body };
  }
  const subject = query.id ? { id: query.id } : { code: query.code };
  return {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...subject, ...options }),
  };
}

function chosenOptions() {
  const options = { [form.elements.mode.value]: Number($("#amount").value) };
  if ($("#label").value) options.label = $("#label").value;
  return options;
}

// Searching

async function search(query, { remember = true, orStart = false } = {}) {
  if (!$("#amount").checkValidity()) {
    showError(`${$("#amount-label").textContent}: ${$("#amount").validationMessage}`);
    return;
  }
  running?.controller.abort();
  const mine = { query, options: { remember, orStart }, controller: new AbortController() };
  running = mine;
  results.classList.add("stale");
  results.setAttribute("aria-busy", "true");
  const started = performance.now();
  try {
    const answer = await ask("/api/search", { ...requestFor(query), signal: mine.controller.signal });
    if (remember) pushQuery(query);
    show(query, answer, performance.now() - started);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (orStart && error.status === 404) start(error.message);
    else showError(error.message);
  } finally {
    if (running === mine) {
      running = null;
      results.classList.remove("stale");
      results.removeAttribute("aria-busy");
    }
  }
}

function pushQuery(query) {
  queries.push(query);
  const state = { visit, query: queries.length - 1 };
  history.pushState(state, "", query.id ? `#${query.id}` : location.pathname);
}

function searchFile(file) {
  if (!info?.uploads) return showError("This index holds no model to encode pictures with.");
  if (file.size > info.uploads.bytes) {
    const most = Math.round(info.uploads.bytes / 2 ** 20);
    return showError(`The picture is larger than ${most} MiB; choose a smaller one.`);
  }
  return search({ file, name: file.name || "Pasted picture", url: URL.createObjectURL(file) });
}

function choose(result) {
  search({ id: result.id, name: result.name, hasPicture: result.has_picture });
  scrollTo({ top: 0, behavior: "instant" });
}

// A start for those who have no picture at hand: what happens to be near a random code.
function start(said = "") {
  const code = crypto.getRandomValues(new Uint8Array(Math.ceil(info.bits / 8)));
  const padding = code.length * 8 - info.bits;
  code[code.length - 1] &= 256 - 2 ** padding;
  const hex = Array.from(code, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return search({ code: hex, random: true, said }, { remember: false });
}

function clear() {
  showError("");
  $("#file").value = "";
  if (current && !current.random) history.pushState(null, "", location.pathname);
  return start();
}

function goBack() {
  const state = history.state;
  if (state?.visit === visit) return search(queries[state.query], { remember: false, orStart: true });
  const id = location.hash.slice(1);
  if (!id) return start();
  if (!/^(n-?\d{1,19}|s[\w-]{0,16384})$/.test(id)) return start("The address names no item of this collection.");
  return search({ id, name: "", hasPicture: true }, { remember: false, orStart: true });
}

// Showing

function show(query, answer, milliseconds) {
  current = query;
  showError(query.said ?? "");
  const random = Boolean(query.random);
  document.body.classList.toggle("searching", !random);
  results.classList.toggle("compared", !random);
  $("#others").hidden = !random || answer.collection === 0;
  showQuery(query, answer);
  const context = { bits: info.bits, queryCode: random ? null : answer.code, choose };
  results.replaceChildren(...answer.results.map((result) => card(result, context)));
  $("#status").textContent = describe(answer, random, milliseconds);
}

function describe(answer, random, milliseconds) {
  const of = `${number.format(answer.collection)} ${info.uploads ? "pictures" : "codes"}`;
  if (random && !answer.results.length) return `Nothing found among ${of}.`;
  if (random) return `Or start from one of these, of ${of}.`;
  const { encode, search } = answer.milliseconds;
  const count = number.format(answer.results.length);
  const found = answer.results.length === 1 ? "1 result" : `${count} results`;
  const more = answer.truncated ? " (there may be more)" : "";
  return `${found}${more} of ${of} in ${time(milliseconds)}: code ${time(encode)}, search ${time(search)}.`;
}

function time(milliseconds) {
  const figure = milliseconds < 10 ? milliseconds.toFixed(1) : number.format(Math.round(milliseconds));
  return `${figure} ms`;
}

function showQuery(query, answer) {
  $("#query").hidden = Boolean(query.random);
  if (query.random) return;
  const self = answer.results.find((result) => result.id === query.id);
  const name = query.name || self?.name || (query.code ? "A code" : "An item of the collection");
  const url = query.url ?? (query.id && query.hasPicture ? `/api/thumbnail/${query.id}` : null);
  $(".query-name").textContent = name;
  $(".query-name").title = name;
  $(".query-code").replaceChildren(barcode(answer.code, answer.code, info.bits));
  $(".preview").replaceChildren(...(url ? [picture(url, `The query: ${name}`)] : []));
}

function showError(message) {
  $("#error").textContent = message;
}

// Choices

function offerAmount() {
  const within = form.elements.mode.value === "radius";
  const amount = $("#amount");
  amount.min = within ? 0 : 1;
  amount.max = within ? info.bits : info.most_results;
  amount.value = within ? Math.round(info.bits / 6) : 24;
  $("#unit").textContent = within ? "bits" : "results";
  $("#amount-label").textContent = within ? "Largest distance in bits" : "Number of results";
}

let soon = 0;
function searchAgainSoon() {
  clearTimeout(soon);
  soon = setTimeout(() => {
    if (running) search(running.query, running.options);
    else if (current && !current.random) search(current, { remember: false });
    else start();
  }, 200);
}

// Beginning

async function begin() {
  try {
    info = await ask("/api/info");
  } catch (error) {
    $("#access").hidden = error.status !== 401;
    if (error.status === 401 && !$("#token").value) return $("#token").focus();
    return showError(error.message);
  }
  showError("");
  $("#access").hidden = true;
  form.hidden = false;
  $("#about").textContent = [
    info.name,
    `${number.format(info.codes)} ${info.uploads ? "pictures" : "codes"}`,
    info.model ?? `${info.bits} bits`,
  ].join(" · ");
  document.title = `${info.name} · Bitprint`;
  $("#drop").hidden = !info.uploads;
  $("#by-code").hidden = Boolean(info.uploads);
  $(".labels").hidden = info.labels.length === 0;
  const options = info.labels.map((name) => element("option", { value: name, textContent: name }));
  $("#label").append(...options);
  offerAmount();
  return goBack();
}

function takeToken(token) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `bitprint-token=${encodeURIComponent(token)}; Path=/; SameSite=Strict${secure}`;
}

function pictureIn(transfer) {
  return Array.from(transfer?.files ?? []).find((file) => file.type.startsWith("image/") || !file.type);
}

$("#access").addEventListener("submit", (event) => {
  event.preventDefault();
  takeToken($("#token").value);
  begin();
});
$("#file").addEventListener("change", () => {
  const [file] = $("#file").files;
  if (file) searchFile(file);
  $("#file").value = ""; // so that choosing the same file again counts as a change
});
$("#clear").addEventListener("click", clear);
$("#others").addEventListener("click", () => start());
$(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names what is searched from
  results.focus();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const code = $("#code").value.trim();
  if (code) search({ code });
});
for (const radio of form.elements.mode) {
  radio.addEventListener("change", () => {
    offerAmount();
    searchAgainSoon();
  });
}
$("#amount").addEventListener("input", searchAgainSoon);
$("#label").addEventListener("change", searchAgainSoon);

addEventListener("popstate", goBack);
addEventListener("paste", (event) => {
  const file = pictureIn(event.clipboardData);
  if (!file) return;
  event.preventDefault();
  searchFile(file);
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && info && !event.target.closest?.("#amount, #label")) clear();
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dragging");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragging");
});
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  const file = pictureIn(event.dataTransfer);
  if (file) searchFile(file);
  else showError("Drop a picture file.");
});

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  takeToken(given);
  history.replaceState(null, "", location.pathname);
}
begin();
