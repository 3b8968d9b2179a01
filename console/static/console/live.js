// Live refresh: fetches the page again while its tab is seen, and changes only what differs, so that chosen rows, focus,
// scrolling and opened details stay.
"use strict";

const REFRESH_MS = 10_000;
const LIVE_REGIONS = "[data-live], #result_list, #main > footer";
const live = { isPaused: localStorage.getItem("accessa.live") === "paused", timer: 0, isBusy: false, isChart: false };

const rowBox = (row) => row.querySelector?.("input.action-select");
const isChosen = (node) => Boolean(rowBox(node)?.checked);
const keyOf = (node) => node.id || (node.tagName === "TBODY" && rowBox(node)?.value) || "";
const isAlike = (a, b) => a && a.nodeName === b.nodeName && !keyOf(a) && !keyOf(b);

function morphNode(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.matches("input, textarea, select")) return; // what somebody types or chooses
  const isStale = morphAttributes(old, fresh);
  if (old.tagName === "CANVAS") live.isChart ||= isStale;
  else if (!old.hasAttribute("hx-get")) morphChildren(old, fresh);
  else if (isStale) htmx.trigger(old, "stale"); // a part with a request of its own
}

function morphAttributes(old, fresh) {
  let isStale = false;
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value || name === "open" || (name !== "data-value" && old.tagName === "CANVAS")) continue;
    old.setAttribute(name, value);
    isStale = true;
  }
  return isStale;
}

// Rows and elements with an id are found by it, all others by their place.
function morphChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  const keys = new Set(wanted.map(keyOf));
  for (const child of [...old.children]) if (keyOf(child) && !keys.has(keyOf(child)) && !isChosen(child)) child.remove();
  const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let next = old.firstChild;
  for (const node of wanted) {
    const found = keyOf(node) ? keyed.get(keyOf(node)) : isAlike(next, node) && next;
    if (!found) {
      old.insertBefore(document.importNode(node, true), next);
      continue;
    }
    if (found === next) next = next.nextSibling;
    else old.insertBefore(found, next);
    morphNode(found, node);
  }
  while (next) {
    const after = next.nextSibling;
    if (!isChosen(next)) next.remove(); // a chosen row stays, though it is not on this page any more
    next = after;
  }
}

function showPage(fresh) {
  showLocalTimes(fresh);
  const lists = [document, fresh].map((root) => root.querySelector("#changelist-form"));
  if (lists[0] && lists.filter((list) => list.querySelector("#result_list")).length === 1) { // one of them is empty
    if (!isChosen(lists[0])) lists[0].replaceWith(document.importNode(lists[1], true));
    return;
  }
  const shown = document.querySelectorAll(LIVE_REGIONS);
  const regions = fresh.querySelectorAll(LIVE_REGIONS);
  if (shown.length === regions.length) keepPlace(() => shown.forEach((region, number) => morphNode(region, regions[number])));
  countChosen();
  if (live.isChart || [...document.querySelectorAll("canvas.chart")].some((canvas) => !Chart.getChart(canvas))) drawCharts();
  live.isChart = false;
}

// What is read stays where it is when rows are added above it, except at the top of the page.
function keepPlace(change) {
  const top = (row) => row.getBoundingClientRect().top;
  const row = scrollY > 0 && [...document.querySelectorAll("#result_list tbody")].find((each) => top(each) >= 0);
  const former = row && top(row);
  change();
  if (!row?.isConnected) return;
  SimpleBar.instances.get(row.closest("[data-simplebar]"))?.recalculate(); // the page is as high as before until then
  scrollBy({ top: top(row) - former, behavior: "instant" });
}

function drawCharts() {
  const canvases = [...document.querySelectorAll("canvas.chart")];
  const fresh = canvases.filter((canvas) => !Chart.getChart(canvas));
  if (fresh.length) {
    canvases.forEach((canvas) => Chart.getChart(canvas)?.destroy());
    renderCharts(); // unfold's: of all that the page has
    return;
  }
  for (const canvas of canvases) {
    const chart = Chart.getChart(canvas);
    chart.data = JSON.parse(canvas.dataset.value);
    chart.update("none");
  }
}

function say(text) {
  document.getElementById("live-time").textContent = text;
}

async function refresh() {
  clearTimeout(live.timer);
  if (live.isPaused || live.isBusy || document.hidden) return;
  live.isBusy = true;
  const begun = performance.now();
  try {
    // No message that another page is to show is taken by this request: base.html.
    const response = await fetch(location.href, { headers: { "X-Live-Refresh": "1" }, cache: "no-store" });
    if (new URL(response.url).pathname !== location.pathname) return say("ended: sign in again"); // and no next time
    if (!response.ok) throw new Error(response.status);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!live.isPaused) {
      showPage(page);
      say(new Date().toLocaleTimeString("sv-SE"));
    }
  } catch {
    say("no answer"); // it says so until there is one
  } finally {
    live.isBusy = false;
  }
  // A slow page takes at most a twentieth of the server's time for each that looks at it.
  live.timer = setTimeout(refresh, Math.max(REFRESH_MS, 20 * (performance.now() - begun)));
}

// Django's script knows only the rows that were there first.
function countChosen() {
  const boxes = [...document.querySelectorAll("#result_list input.action-select")];
  const counter = document.querySelector("span.action-counter");
  const toggle = document.getElementById("action-toggle");
  const chosen = boxes.filter((box) => box.checked).length;
  if (counter) counter.textContent = `${chosen} of ${boxes.length} selected`;
  if (toggle) toggle.checked = boxes.length > 0 && chosen === boxes.length;
}

document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("live");
  if (!button) return;
  const show = () => {
    button.setAttribute("aria-pressed", String(!live.isPaused));
    say(live.isPaused ? "paused" : new Date().toLocaleTimeString("sv-SE"));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    live.isPaused = !live.isPaused;
    localStorage.setItem("accessa.live", live.isPaused ? "paused" : "");
    show();
    refresh();
  });
  show();
  live.timer = setTimeout(refresh, REFRESH_MS);
  document.addEventListener("visibilitychange", refresh);
  document.addEventListener("change", (event) => { if (event.target.matches(".action-select")) countChosen(); });
  document.addEventListener("click", (event) => {
    if (event.target.id !== "action-toggle") return;
    for (const box of document.querySelectorAll("#result_list input.action-select")) box.checked = event.target.checked;
    countChosen();
  });
});
