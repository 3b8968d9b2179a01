// Copy buttons, and times in local time with UTC on hover: in pages and in what htmx loads into them.
"use strict";

function showLocalTimes(root) {
  for (const shown of root.querySelectorAll("time[datetime]:not([title])")) {
    const moment = new Date(shown.dateTime);
    if (isNaN(moment)) continue;
    shown.title = shown.textContent;
    shown.textContent = moment.toLocaleString("sv-SE"); // 2026-11-24 14:05:09
  }
}

async function copyText(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    window.prompt("Copy", text); // without HTTPS there is no clipboard
    return;
  }
  button.textContent = "check";
  setTimeout(() => { button.textContent = "content_copy"; }, 1500);
}

document.addEventListener("DOMContentLoaded", () => showLocalTimes(document));
// simplebar gives all that scrolls the same name.
window.addEventListener("load", () => {
  for (const region of document.querySelectorAll(".simplebar-content-wrapper[role=region]")) {
    region.setAttribute("aria-label", region.closest("#nav-sidebar") ? "Menu, scrollable" : "List, scrollable");
  }
});
document.addEventListener("htmx:afterSwap", (event) => showLocalTimes(event.target));
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  event.preventDefault();
  copyText(button);
});
