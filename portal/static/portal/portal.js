// Uploads, the deletion dialog, announcements for screen readers, search history. No inline code, no eval.
// gettext, ngettext and interpolate come from the page's language: portal/language.py.
"use strict";

const byId = (id) => document.getElementById(id);
const announce = (sentence) => { byId("news").textContent = sentence; };

// --- uploads: one row each, three at a time -------------------------------------------------------------------------

const MAX_UPLOADS = 3;
const waiting = [];
let busy = 0;
let isLeaving = false;
const settings = JSON.parse(byId("upload-settings")?.textContent ?? "null");

// Errors of the file itself: another attempt would fail alike.
const FINAL = new Set(["EMPTY_FILE", "FILE_TOO_LARGE", "FILENAME_TOO_LONG", "NOT_A_PDF"]);

class UploadError extends Error {
  constructor(code, detail, retryAfter) {
    super(sentence(code, detail, retryAfter));
    this.code = code;
  }
}

const overLimit = (code, size) => new UploadError(code, settings.limits[code].replace("{}", size));

function sentence(code, detail, retryAfter) {
  const message = (settings.detailed.includes(code) && detail) || (settings.sentences[code] ?? detail ?? settings.sentences.UNREACHABLE);
  return retryAfter > 0 ? `${message} ${interpolate(gettext("Come back %s."), [pause(retryAfter)])}` : message;
}

function pause(seconds) {
  if (seconds > 1.5 * 3600) return interpolate(gettext("in %s hours"), [Math.round(seconds / 3600)]);
  if (seconds > 1.5 * 60) return interpolate(gettext("in %s minutes"), [Math.round(seconds / 60)]);
  const count = Math.max(1, Math.round(seconds));
  return interpolate(ngettext("in %s second", "in %s seconds", count), [count]);
}

function addFiles(files) {
  for (const file of files) {
    waiting.push({ file, row: newRow(file), ocr: byId("ocr").checked });
  }
  startUploads();
}

function startUploads() {
  while (busy < MAX_UPLOADS && waiting.length) {
    busy += 1;
    upload(waiting.shift()).finally(() => { busy -= 1; startUploads(); });
  }
}

function newRow(file) {
  const row = document.createElement("li");
  row.className = "row";
  const name = row.appendChild(document.createElement("p"));
  name.className = "name";
  // Without control characters that reverse or hide text: the server removes them, too.
  name.appendChild(document.createElement("bdi")).textContent = file.name.replace(/[\p{Cc}\p{Cf}]/gu, "");
  const state = row.appendChild(document.createElement("p"));
  state.textContent = gettext("In line.");
  const bar = row.appendChild(document.createElement("progress"));
  bar.max = 100;
  bar.value = 0;
  bar.setAttribute("aria-label", interpolate(gettext("Upload of %s"), [file.name]));
  byId("uploads").append(row);
  return { row, state, bar };
}

async function upload({ file, row, ocr }) {
  let declared;
  try {
    row.state.textContent = gettext("Checking the file.");
    const sha256 = await checkFile(file);
    const known = await findKnown(sha256);
    if (known.url) return showKnown(row, file, known);
    row.state.textContent = gettext("Uploading.");
    declared = await declare(file, sha256, ocr);
    await put(file, declared.signed_url, sha256, row.bar);
    row.row.remove();
    announce(interpolate(gettext("%s was uploaded."), [file.name]));
    htmx.trigger("#documents", "refresh");
  } catch (error) {
    if (!(error instanceof UploadError)) console.warn("upload", error.name);
    showError(row, file, ocr, error instanceof UploadError ? error : new UploadError("UNREACHABLE"));
    if (declared) htmx.trigger("#documents", "refresh"); // the document is listed, and waits for its bytes
  }
}

// Returns the url and the name of the document that has these bytes already, or {}.
async function findKnown(sha256) {
  const token = byId("upload").querySelector("[name=csrfmiddlewaretoken]").value;
  const response = await fetch(settings.duplicate_url, { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams({ sha256 }) });
  if (response.redirected) throw signInAgain();
  return response.ok ? response.json() : {};
}

function showKnown({ row, state, bar }, file, known) {
  state.textContent = `${gettext("Already here:")} `;
  const link = state.appendChild(document.createElement("a"));
  link.href = known.url;
  link.textContent = known.name;
  bar.remove();
  const acts = row.appendChild(document.createElement("p"));
  acts.className = "acts";
  button(acts, gettext("Dismiss"), file.name, () => { row.remove(); byId("files").focus(); });
  announce(interpolate(gettext("%s is already here."), [file.name]));
}

// The sign-in form leads back to this page.
function signInAgain() {
  isLeaving = true;
  location.assign(`${settings.sign_in_url}?next=${encodeURIComponent(location.pathname + location.search)}`);
  return new UploadError("NOT_AUTHENTICATED");
}

function showError({ row, state, bar }, file, ocr, error) {
  state.className = "wrong";
  state.textContent = error.message;
  bar.remove();
  const acts = row.appendChild(document.createElement("p"));
  acts.className = "acts";
  if (!FINAL.has(error.code)) button(acts, gettext("Try again"), file.name, () => { row.remove(); waiting.push({ file, row: newRow(file), ocr }); startUploads(); });
  button(acts, gettext("Dismiss"), file.name, () => { row.remove(); byId("files").focus(); });
  announce(`${file.name}: ${error.message}`);
}

function button(parent, text, name, act) {
  const element = parent.appendChild(document.createElement("button"));
  element.type = "button";
  element.className = "quiet";
  element.textContent = text;
  element.setAttribute("aria-label", `${text}: ${name}`);
  element.addEventListener("click", act);
}

// Returns the file's SHA-256 as hexadecimal digits. Rejects what the server would reject, before anything is sent.
async function checkFile(file) {
  if (file.size > settings.max_bytes) throw overLimit("FILE_TOO_LARGE", (file.size / 2 ** 20).toFixed(1));
  if (file.size === 0) throw new UploadError("EMPTY_FILE");
  if (file.name.length > settings.max_filename_chars) throw overLimit("FILENAME_TOO_LONG", file.name.length);
  if (!window.isSecureContext) throw new UploadError("INSECURE");
  let bytes;
  try {
    bytes = await file.arrayBuffer();
  } catch {
    throw new UploadError("UNREADABLE");
  }
  if (!new TextDecoder("latin1").decode(bytes.slice(0, 1024)).includes("%PDF-")) throw new UploadError("NOT_A_PDF");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function declare(file, sha256, ocr) {
  const token = byId("upload").querySelector("[name=csrfmiddlewaretoken]").value;
  const response = await fetch("/upload", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRFToken": token },
    body: JSON.stringify({ filename: file.name, bytes_len: file.size, mime: "application/pdf", sha256, ocr }),
  });
  const body = await response.json().catch(() => ({}));
  if (response.status === 401) throw signInAgain();
  if (!response.ok) throw new UploadError(body.code, body.detail, Number(response.headers.get("Retry-After")));
  return body;
}

// XMLHttpRequest, because fetch has no upload progress.
function put(file, url, sha256, bar) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    // The page may be open under another host name than public_url: our own store is available under it, too.
    request.open("PUT", url.startsWith(`${settings.public_url}/`) ? url.slice(settings.public_url.length) : url);
    for (const [name, value] of headers(url, sha256)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => { if (event.lengthComputable) bar.value = (100 * event.loaded) / event.total; };
    request.onerror = request.onabort = () => failed(new UploadError("UNREACHABLE"));
    request.onload = () => (request.status < 300 ? done() : failed(storeError(request)));
    request.send(file);
  });
}

function storeError(request) {
  try {
    const body = JSON.parse(request.responseText);
    return new UploadError(body.code, body.detail, Number(request.getResponseHeader("Retry-After")));
  } catch {
    return new UploadError("REFUSED_BY_STORE"); // S3 answers with XML
  }
}

// S3 requires each signed header, and rejects other headers of its own.
function headers(url, sha256) {
  const base64 = btoa(sha256.match(/../g).map((pair) => String.fromCharCode(parseInt(pair, 16))).join(""));
  const all = [["content-type", "application/pdf"], ["x-amz-checksum-sha256", base64]];
  const signed = new URL(url, location.href).searchParams.get("X-Amz-SignedHeaders");
  if (signed === null) return all;
  all.push(["x-amz-server-side-encryption", settings.encryption], ["x-amz-server-side-encryption-aws-kms-key-id", settings.kms_key]);
  return all.filter(([name]) => signed.split(";").includes(name));
}

if (byId("upload")) {
  const zone = byId("upload");
  zone.hidden = false;
  zone.addEventListener("submit", (event) => event.preventDefault());
  const files = byId("files");
  const takeFiles = () => { addFiles([...files.files]); files.value = ""; };
  files.addEventListener("change", takeFiles);
  takeFiles(); // what was chosen before this script began
  // On the whole page: the browser would open a file that is dropped beside the zone.
  addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) zone.classList.remove("over"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    addFiles([...event.dataTransfer.files]);
  });
  addEventListener("beforeunload", (event) => { if (busy && !isLeaving) event.preventDefault(); });
}

// --- deletion dialog; without this script the link leads to a confirmation page --------------------------------------

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-delete]");
  const dialog = byId("confirm");
  if (link && dialog) {
    event.preventDefault();
    dialog.querySelector("[data-name]").textContent = link.dataset.delete;
    dialog.querySelector("form").action = link.href;
    dialog.dataset.from = link.id;
    dialog.showModal();
    dialog.querySelector("[data-close]").focus();
  } else if (event.target.closest("[data-close]")) {
    dialog.close();
  }
});
// The list may have been replaced meanwhile: the link is found by its id.
byId("confirm")?.addEventListener("close", (event) => byId(event.target.dataset.from)?.focus());

// --- the list: choices outlive its polls; filters apply themselves; images that are not drawn yet are asked for again ----

const picked = new Set();

function showPicked() {
  const boxes = [...document.querySelectorAll(".pick")];
  const here = new Set(boxes.map((box) => box.value));
  for (const id of picked) if (!here.has(id)) picked.delete(id);
  for (const box of boxes) box.checked = picked.has(box.value);
  byId("bulk").hidden = picked.size === 0;
  byId("picked").textContent = interpolate(ngettext("%s chosen", "%s chosen", picked.size), [picked.size]);
  byId("pick-all").checked = picked.size === boxes.length && boxes.length > 0;
}

if (byId("bulk")) {
  for (const box of document.querySelectorAll(".pick:checked")) picked.add(box.value); // after going back
  byId("bulk").querySelector("[data-pick-all]").hidden = false;
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches(".pick")) box.checked ? picked.add(box.value) : picked.delete(box.value);
    else if (box.id === "pick-all") document.querySelectorAll(".pick").forEach((each) => (box.checked ? picked.add(each.value) : picked.delete(each.value)));
    else if (box.matches("#filters select")) return byId("filters").requestSubmit();
    else return;
    showPicked();
  });
  document.addEventListener("htmx:afterSwap", showPicked);
  showPicked();
}

const RETRY_IMAGE_MS = 3000;
document.addEventListener("error", (event) => {
  const image = event.target;
  if (!image.matches?.("[data-thumbnail]")) return;
  const source = image.getAttribute("src");
  const frame = image.parentElement;
  image.remove(); // the frame shows lines instead
  if (source.includes("?")) return;
  setTimeout(() => {
    image.src = `${source}?again`;
    frame.append(image);
  }, RETRY_IMAGE_MS);
}, true);

// --- times of the reader's own zone, in the server's format, with UTC on hover ---------------------------------------

const DAY = { day: "numeric", month: "short", year: "numeric" };
const TIME = { hour: "2-digit", minute: "2-digit" };

function showLocalTimes() {
  const language = document.documentElement.lang.replace(/^en$/, "en-GB");
  for (const shown of document.querySelectorAll("time[datetime*=T]:not([title])")) {
    const moment = new Date(shown.dateTime);
    shown.title = `${moment.toLocaleString(language, { ...DAY, ...TIME, timeZone: "UTC" })} UTC`;
    shown.textContent = moment.toLocaleString(language, shown.textContent.includes(":") ? { ...DAY, ...TIME } : DAY);
  }
}

showLocalTimes();
const zone = document.querySelector("#filters [name=zone]");
if (zone) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone; // the filters' days are the days that are shown
document.addEventListener("htmx:afterSwap", showLocalTimes);

// --- announcements of status changes for screen readers -------------------------------------------------------------

const seen = new Map();

function statusChanges(root) {
  const sentences = [];
  for (const row of root.querySelectorAll("[data-standing]")) {
    const before = seen.get(row.id);
    seen.set(row.id, row.dataset.standing);
    if (before && before !== row.dataset.standing && ["done", "dead", "retrying"].includes(row.dataset.standing)) {
      const name = row.querySelector(".name")?.textContent.trim() ?? "";
      sentences.push(`${name}: ${row.querySelector("[data-label]").textContent}. ${row.querySelector("[data-sentence]").textContent}`);
    }
  }
  return sentences.join(" ");
}

statusChanges(document);
document.addEventListener("htmx:afterSwap", (event) => {
  byId("alarm")?.remove();
  const news = statusChanges(document);
  if (news) announce(news);
  // The button that was buttonId is gone with what it has mended.
  const buttonId = event.detail.requestConfig?.triggeringEvent?.submitter?.id ?? "";
  if (buttonId.startsWith("retry-") && !byId(buttonId)) byId(buttonId.replace("retry-", "open-"))?.focus();
});
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target.matches("[data-news]")) byId("results-title").focus();
});
// A page in the background does not poll; it polls once when it becomes visible.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.detail.requestConfig.verb === "get") event.preventDefault();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && byId("documents")) htmx.trigger("#documents", "refresh"); });
for (const failed of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(failed, (event) => {
    const isPoll = event.detail.requestConfig?.verb === "get";
    alarm(isPoll ? gettext("Our service cannot be reached; trying again.") : gettext("This did not work. Load this page again and try once more."));
  });
}

function alarm(sentence) {
  if (byId("alarm")) return;
  const message = document.createElement("p");
  message.id = "alarm";
  message.className = "message error";
  message.setAttribute("role", "alert");
  message.textContent = sentence;
  byId("main").prepend(message);
}

// --- search: each question has an address, so that going back and reloading show its results -------------------------

byId("ask")?.addEventListener("change", () => {
  const chosen = (selector) => byId("ask").querySelectorAll(`${selector}:checked`).length;
  const tags = chosen("[name=tag]");
  const documents = chosen("[name=document]:not([value=laws])");
  const parts = [];
  if (tags) parts.push(interpolate(ngettext("%s tag", "%s tags", tags), [tags]));
  if (documents) parts.push(interpolate(ngettext("%s document", "%s documents", documents), [documents]));
  const other = chosen("[value=laws]") ? gettext("statutes only") : gettext("everything");
  document.querySelector("[data-scope]").textContent = parts.join(", ") || other;
});

let modelAnswer = new AbortController();
let shownPath = location.pathname;

function showAddress() {
  const address = byId("results")?.dataset.address;
  if (!address || address === location.pathname) return false;
  history.pushState(null, "", address);
  shownPath = address;
  return true;
}

if (byId("results")?.dataset.address) {
  if (showAddress()) byId("results-title").focus(); // a form without htmx was sent
  startModelAnswer();
}
document.addEventListener("htmx:afterSettle", (event) => {
  if (!event.target.matches("#results")) return;
  showAddress();
  startModelAnswer();
});
// The results of an address are the server's. A link within the page moves the history, too.
addEventListener("popstate", () => { if (location.pathname !== shownPath) location.reload(); });

// --- a model's answer, sentence by sentence; the quotations below it are there already --------------------------------

async function startModelAnswer() {
  modelAnswer.abort();
  const box = byId("model-answer");
  if (!box) return;
  modelAnswer = new AbortController();
  box.hidden = false;
  const kept = history.state?.answer; // after going back: it was bought already
  if (kept) return showModelAnswer(box, kept);
  try {
    for await (const [name, body] of answerEvents(box, modelAnswer.signal)) {
      if (name === "sentence") box.querySelector(".sentences").append(sentenceItem(body));
      if (name === "error") break;
      if (name !== "done") continue;
      showModelAnswer(box, body);
      if (body.answerer !== "extractive") history.replaceState({ answer: { answerer: body.answerer, sentences: body.sentences } }, "");
      return;
    }
    failModelAnswer(box);
  } catch (error) {
    if (error.name !== "AbortError") failModelAnswer(box);
  }
}

// Yields [event, body] of the stream.
async function* answerEvents(box, signal) {
  const response = await fetch(box.dataset.answerUrl, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", "X-CSRFToken": box.querySelector("[name=csrfmiddlewaretoken]").value },
    body: box.dataset.request,
  });
  if (!response.ok || !response.headers.get("Content-Type").startsWith("text/event-stream")) throw new Error("no stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    text += chunk.value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [event, line] = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      yield [event.slice("event: ".length), JSON.parse(line.slice("data: ".length))];
    }
  }
}

function sentenceItem(sentence) {
  const item = document.createElement("li");
  item.textContent = sentence.text;
  const cited = item.appendChild(document.createElement("span"));
  cited.className = "hint";
  for (const citation of sentence.citations) {
    cited.append(cited.childNodes.length ? ", " : " — ");
    const place = document.createElement(citation.document_id ? "a" : "bdi");
    if (citation.document_id) place.href = `/d/${citation.document_id}?passage=${citation.chunk_id}&span=${citation.span.join("-")}#cited`;
    place.textContent = citation.title + (citation.page ? interpolate(gettext(", page %s"), [citation.page]) : "");
    cited.append(place);
  }
  return item;
}

function showModelAnswer(box, answer) {
  if (answer.answerer === "extractive") return failModelAnswer(box);
  box.querySelector("[data-state]").textContent = gettext("Written by a model; every figure, date and name stands in the passages that are named. Check them.");
  box.querySelector(".sentences").replaceChildren(...answer.sentences.map(sentenceItem));
  announce(gettext("The answer is complete."));
}

function failModelAnswer(box) {
  box.querySelector("[data-state]").textContent = gettext("The model could not answer. What your documents say is below.");
  box.querySelector(".sentences").replaceChildren();
}

// --- page images ----------------------------------------------------------------------------------------------------

for (const image of document.querySelectorAll("[data-page-image]")) {
  const missing = () => {
    image.closest(".frame").hidden = true;
    document.querySelector("[data-no-page-image]").hidden = false;
  };
  image.addEventListener("error", missing);
  if (image.complete && image.naturalWidth === 0) missing();
}
