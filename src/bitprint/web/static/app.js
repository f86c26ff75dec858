// The search page: the query (a photo, an item or a code) and its results.

import { barcode, card, element, photo } from "./draw.js";

const $ = (selector) => document.querySelector(selector);
const form = $("#search");
const results = $("#results");
const number = new Intl.NumberFormat("en");

let info = null;
let running = null; // the search in progress
const queries = []; // all queries of this visit, so that Back also works for uploads
const visit = performance.timeOrigin; // after a reload, the history remains, but not the queries
let current = null;

// Requests to the server

async function fetchJson(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  if (response.ok) return response.json();
  const status = { detail: `the server returned status ${response.status}` };
  const { detail } = await response.json().catch(() => status);
  const error = new Error(sentence(detail));
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

async function search(query, { remember = true, orRandom = false } = {}) {
  if (!$("#amount").checkValidity()) {
    showError(`${$("#amount-label").textContent}: ${$("#amount").validationMessage}`);
    return;
  }
  running?.controller.abort();
  const mine = { query, options: { remember, orRandom }, controller: new AbortController() };
  running = mine;
  results.classList.add("stale");
  results.setAttribute("aria-busy", "true");
  const started = performance.now();
  try {
    const answer = await fetchJson("/api/search", { ...requestFor(query), signal: mine.controller.signal });
    if (remember) pushQuery(query);
    show(query, answer, performance.now() - started);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (orRandom && error.status === 404) showRandom(error.message);
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
  if (!info?.uploads) return showError("This index contains no model to encode photos.");
  if (file.size > info.uploads.bytes) {
    const most = Math.round(info.uploads.bytes / 2 ** 20);
    return showError(`The photo is larger than ${most} MiB; choose a smaller one.`);
  }
  return search({ file, name: file.name || "Pasted photo", url: URL.createObjectURL(file) });
}

function searchByResult(result) {
  search({ id: result.id, name: result.name, hasPicture: result.has_picture });
  scrollTo({ top: 0, behavior: "instant" });
}

// The start page: results near a random code.
function showRandom(message = "") {
  const code = crypto.getRandomValues(new Uint8Array(Math.ceil(info.bits / 8)));
  const padding = code.length * 8 - info.bits;
  code[code.length - 1] &= 256 - 2 ** padding;
  const hex = Array.from(code, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return search({ code: hex, random: true, message }, { remember: false });
}

function clear() {
  showError("");
  $("#file").value = "";
  if (current && !current.random) history.pushState(null, "", location.pathname);
  return showRandom();
}

function restoreQuery() {
  const state = history.state;
  if (state?.visit === visit) return search(queries[state.query], { remember: false, orRandom: true });
  const id = location.hash.slice(1);
  if (!id) return showRandom();
  if (!/^(n-?\d{1,19}|s[\w-]{0,16384})$/.test(id)) return showRandom("The address does not match an item of this collection.");
  return search({ id, name: "", hasPicture: true }, { remember: false, orRandom: true });
}

// Display

function show(query, answer, milliseconds) {
  current = query;
  showError(query.message ?? "");
  const random = Boolean(query.random);
  document.body.classList.toggle("searching", !random);
  results.classList.toggle("compared", !random);
  $("#others").hidden = !random || answer.collection === 0;
  showQuery(query, answer);
  const context = { bits: info.bits, queryCode: random ? null : answer.code, onChoose: searchByResult };
  results.replaceChildren(...answer.results.map((result) => card(result, context)));
  $("#status").textContent = describe(answer, random, milliseconds);
}

function describe(answer, random, milliseconds) {
  const kind = info.uploads ? "photos" : "codes";
  const total = `${number.format(answer.collection)} ${kind}`;
  if (random && !answer.results.length) return `No results from ${total}.`;
  if (random) return `Or choose one of these ${kind} (a random selection from ${total}).`;
  const { encode, search } = answer.milliseconds;
  const count = number.format(answer.results.length);
  const found = answer.results.length === 1 ? "1 result" : `${count} results`;
  const more = answer.truncated ? " (there may be more)" : "";
  return `${found}${more} from ${total} in ${time(milliseconds)} (encoding ${time(encode)}, search ${time(search)}).`;
}

function time(milliseconds) {
  const figure = milliseconds < 10 ? milliseconds.toFixed(1) : number.format(Math.round(milliseconds));
  return `${figure} ms`;
}

function showQuery(query, answer) {
  $("#query").hidden = Boolean(query.random);
  if (query.random) return;
  const self = answer.results.find((result) => result.id === query.id);
  const name = query.name || self?.name || (query.code ? "Code" : "Item of the collection");
  const url = query.url ?? (query.id && query.hasPicture ? `/api/thumbnail/${query.id}` : null);
  $(".query-name").textContent = name;
  $(".query-name").title = name;
  $(".query-code").replaceChildren(barcode(answer.code, answer.code, info.bits));
  $(".preview").replaceChildren(...(url ? [photo(url, `Query: ${name}`)] : []));
}

function showError(message) {
  $("#error").textContent = message;
}

// Options

function updateAmount() {
  const within = form.elements.mode.value === "radius";
  const amount = $("#amount");
  amount.min = within ? 0 : 1;
  amount.max = within ? info.bits : info.most_results;
  amount.value = within ? Math.round(info.bits / 6) : 24;
  $("#unit").textContent = within ? "bits" : "results";
  $("#amount-label").textContent = within ? "Largest distance in bits" : "Number of results";
}

let timer = 0;
function scheduleSearch() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (running) search(running.query, running.options);
    else if (current && !current.random) search(current, { remember: false });
    else showRandom();
  }, 200);
}

// Initialization

async function initialize() {
  try {
    info = await fetchJson("/api/info");
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
    `${number.format(info.codes)} ${info.uploads ? "photos" : "codes"}`,
    info.model ?? `${info.bits} bits`,
  ].join(" · ");
  document.title = `${info.name} · Bitprint`;
  $("#drop").hidden = !info.uploads;
  $("#by-code").hidden = Boolean(info.uploads);
  $(".labels").hidden = info.labels.length === 0;
  const options = info.labels.map((name) => element("option", { value: name, textContent: name }));
  $("#label").append(...options);
  updateAmount();
  return restoreQuery();
}

function storeToken(token) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `bitprint-token=${encodeURIComponent(token)}; Path=/; SameSite=Strict${secure}`;
}

function imageFileOf(transfer) {
  return Array.from(transfer?.files ?? []).find((file) => file.type.startsWith("image/") || !file.type);
}

$("#access").addEventListener("submit", (event) => {
  event.preventDefault();
  storeToken($("#token").value);
  initialize();
});
$("#file").addEventListener("change", () => {
  const [file] = $("#file").files;
  if (file) searchFile(file);
  $("#file").value = ""; // so that choosing the same file again is a change
});
$("#clear").addEventListener("click", clear);
$("#others").addEventListener("click", () => showRandom());
$(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment of the address is the query
  results.focus();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const code = $("#code").value.trim();
  if (code) search({ code });
});
for (const radio of form.elements.mode) {
  radio.addEventListener("change", () => {
    updateAmount();
    scheduleSearch();
  });
}
$("#amount").addEventListener("input", scheduleSearch);
$("#label").addEventListener("change", scheduleSearch);

addEventListener("popstate", restoreQuery);
addEventListener("paste", (event) => {
  const file = imageFileOf(event.clipboardData);
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
  const file = imageFileOf(event.dataTransfer);
  if (file) searchFile(file);
  else showError("Drop a photo file.");
});

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  storeToken(given);
  history.replaceState(null, "", location.pathname);
}
initialize();
