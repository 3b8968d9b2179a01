// What pages do beyond links and forms: upload, confirm, tell a screen reader what has changed. No inline code, no eval.
"use strict";

const byId = (id) => document.getElementById(id);
const tell = (sentence) => { byId("news").textContent = sentence; };

// --- uploads: one row each, three at a time -------------------------------------------------------------------------

const TOGETHER = 3;
const waiting = [];
let busy = 0;
const told = JSON.parse(byId("told")?.textContent ?? "null");

// Of the file itself: another try would end alike.
const FINAL = new Set(["EMPTY_FILE", "FILE_TOO_LARGE", "FILENAME_TOO_LONG", "NOT_A_PDF"]);

class Refusal extends Error {
  constructor(code, detail, retryAfter) {
    super(sentence(code, detail, retryAfter));
    this.code = code;
  }
}

function sentence(code, detail, retryAfter) {
  const said = told.sentences[code] ?? detail ?? told.sentences.UNREACHABLE;
  return retryAfter > 0 ? `${said} Come back ${pause(retryAfter)}.` : said;
}

function pause(seconds) {
  for (const [unit, length] of [["hour", 3600], ["minute", 60]]) {
    if (seconds > 1.5 * length) return `in ${Math.round(seconds / length)} ${unit}s`;
  }
  return `in ${Math.max(1, Math.round(seconds))} seconds`;
}

function take(files) {
  for (const file of files) {
    waiting.push({ file, row: newRow(file), ocr: byId("ocr").checked });
  }
  next();
}

function next() {
  while (busy < TOGETHER && waiting.length) {
    busy += 1;
    upload(waiting.shift()).finally(() => { busy -= 1; next(); });
  }
}

function newRow(file) {
  const row = document.createElement("li");
  row.className = "row";
  const name = row.appendChild(document.createElement("p"));
  name.className = "name";
  // Without what turns the writing round or hides: the server keeps no such characters either.
  name.appendChild(document.createElement("bdi")).textContent = file.name.replace(/[\p{Cc}\p{Cf}]/gu, "");
  const state = row.appendChild(document.createElement("p"));
  state.textContent = "In line.";
  const bar = row.appendChild(document.createElement("progress"));
  bar.max = 100;
  bar.value = 0;
  bar.setAttribute("aria-label", `Upload of ${file.name}`);
  byId("uploads").append(row);
  return { row, state, bar };
}

async function upload({ file, row, ocr }) {
  let declared;
  try {
    row.state.textContent = "Checking the file.";
    const sha256 = await checked(file);
    row.state.textContent = "Uploading.";
    declared = await declare(file, sha256, ocr);
    await put(file, declared.signed_url, sha256, row.bar);
    row.row.remove();
    tell(`${file.name} was uploaded.`);
    htmx.trigger("#documents", "refresh");
  } catch (error) {
    if (!(error instanceof Refusal)) console.warn("upload", error.name);
    refuse(row, file, ocr, error instanceof Refusal ? error : new Refusal("UNREACHABLE"));
    if (declared) htmx.trigger("#documents", "refresh"); // it is listed, and waits for its bytes
  }
}

function refuse({ row, state, bar }, file, ocr, refusal) {
  state.className = "wrong";
  state.textContent = refusal.message;
  bar.remove();
  const acts = row.appendChild(document.createElement("p"));
  acts.className = "acts";
  if (!FINAL.has(refusal.code)) button(acts, "Try again", file.name, () => { row.remove(); waiting.push({ file, row: newRow(file), ocr }); next(); });
  button(acts, "Dismiss", file.name, () => { row.remove(); byId("files").focus(); });
  tell(`${file.name}: ${refusal.message}`);
}

function button(parent, text, name, act) {
  const made = parent.appendChild(document.createElement("button"));
  made.type = "button";
  made.className = "quiet";
  made.textContent = text;
  made.setAttribute("aria-label", `${text}: ${name}`);
  made.addEventListener("click", act);
}

// Returns the file's SHA-256 in hexadecimal digits; what the server would refuse is refused before it is sent.
async function checked(file) {
  if (file.size > told.most) throw new Refusal("FILE_TOO_LARGE");
  if (file.size === 0) throw new Refusal("EMPTY_FILE");
  if (file.name.length > told.longest) throw new Refusal("FILENAME_TOO_LONG");
  if (!window.isSecureContext) throw new Refusal("INSECURE");
  let bytes;
  try {
    bytes = await file.arrayBuffer();
  } catch {
    throw new Refusal("UNREADABLE");
  }
  if (!new TextDecoder("latin1").decode(bytes.slice(0, 1024)).includes("%PDF-")) throw new Refusal("NOT_A_PDF");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function declare(file, sha256, ocr) {
  const token = byId("upload").querySelector("[name=csrfmiddlewaretoken]").value;
  const answer = await fetch("/upload", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRFToken": token },
    body: JSON.stringify({ filename: file.name, bytes_len: file.size, mime: "application/pdf", sha256, ocr }),
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(said.code, said.detail, Number(answer.headers.get("Retry-After")));
  return said;
}

// XMLHttpRequest, because fetch does not tell how much has been sent.
function put(file, url, sha256, bar) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    // Under whatever name this page was opened, our own store is under the same.
    request.open("PUT", url.startsWith(`${told.ours}/`) ? url.slice(told.ours.length) : url);
    for (const [name, value] of headers(url, sha256)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => { if (event.lengthComputable) bar.value = (100 * event.loaded) / event.total; };
    request.onerror = request.onabort = () => failed(new Refusal("UNREACHABLE"));
    request.onload = () => (request.status < 300 ? done() : failed(answered(request)));
    request.send(file);
  });
}

function answered(request) {
  try {
    const said = JSON.parse(request.responseText);
    return new Refusal(said.code, said.detail, Number(request.getResponseHeader("Retry-After")));
  } catch {
    return new Refusal("REFUSED_BY_STORE"); // an S3 answers XML
  }
}

// An S3 wants each header that it signed, and refuses others of its own.
function headers(url, sha256) {
  const base64 = btoa(sha256.match(/../g).map((pair) => String.fromCharCode(parseInt(pair, 16))).join(""));
  const offered = [["content-type", "application/pdf"], ["x-amz-checksum-sha256", base64]];
  const signed = new URL(url, location.href).searchParams.get("X-Amz-SignedHeaders");
  if (signed === null) return offered;
  offered.push(["x-amz-server-side-encryption", told.encryption], ["x-amz-server-side-encryption-aws-kms-key-id", told.key]);
  return offered.filter(([name]) => signed.split(";").includes(name));
}

if (byId("upload")) {
  const zone = byId("upload");
  zone.hidden = false;
  zone.addEventListener("submit", (event) => event.preventDefault());
  byId("files").addEventListener("change", (event) => { take([...event.target.files]); event.target.value = ""; });
  // Anywhere on the page: a file that misses the zone would replace the page.
  addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) zone.classList.remove("over"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    take([...event.dataTransfer.files]);
  });
  addEventListener("beforeunload", (event) => { if (busy) event.preventDefault(); });
}

// --- deletion: asked in a dialog; without this script the link leads to a page that asks ----------------------------

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
// The list may have been renewed meanwhile: the link that asked is found by its name.
byId("confirm")?.addEventListener("close", (event) => byId(event.target.dataset.from)?.focus());

// --- what changed, for who does not see it --------------------------------------------------------------------------

const seen = new Map();

function changes(root) {
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

changes(document);
document.addEventListener("htmx:afterSwap", (event) => {
  byId("alarm")?.remove();
  const news = changes(document);
  if (news) tell(news);
  // The button that was pressed is gone with what it has mended.
  const pressed = event.detail.requestConfig?.triggeringEvent?.submitter?.id ?? "";
  if (pressed.startsWith("retry-") && !byId(pressed)) byId(pressed.replace("retry-", "open-"))?.focus();
});
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.target.matches("[data-news]")) byId("results-title").focus();
});
// A page in the background need not look; one look is due when it comes back.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.detail.requestConfig.verb === "get") event.preventDefault();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && byId("documents")) htmx.trigger("#documents", "refresh"); });
for (const failed of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(failed, (event) => {
    const looks = event.detail.requestConfig?.verb === "get";
    alarm(looks ? "Our service cannot be reached; trying again." : "This did not work. Load this page again and try once more.");
  });
}

function alarm(sentence) {
  if (byId("alarm")) return;
  const shown = document.createElement("p");
  shown.id = "alarm";
  shown.className = "message error";
  shown.setAttribute("role", "alert");
  shown.textContent = sentence;
  byId("main").prepend(shown);
}

// --- search: going back to the results asks again, for the question is in no address ---------------------------------

const ask = byId("ask");
if (ask) {
  ask.addEventListener("submit", () => history.replaceState({ asked: [...new FormData(ask)].filter(([name]) => name !== "csrfmiddlewaretoken") }, ""));
  if (history.state?.asked) {
    for (const [name, value] of history.state.asked) ask.elements[name].value = value;
    addEventListener("DOMContentLoaded", () => ask.requestSubmit());
  }
}

// --- pictures of pages ----------------------------------------------------------------------------------------------

for (const picture of document.querySelectorAll("[data-picture]")) {
  const missing = () => {
    picture.closest(".frame").hidden = true;
    document.querySelector("[data-no-picture]").hidden = false;
  };
  picture.addEventListener("error", missing);
  if (picture.complete && picture.naturalWidth === 0) missing();
}
