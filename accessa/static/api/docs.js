// Landmarks and headings of Swagger UI: all of the page is in a landmark, and no level of headings is left out.
"use strict";

const LANDMARKS = { ".information-container": "About the API", ".scheme-container": "Authorization" };
const LEVELS = { "h3": 2, "h4": 3, "h5": 4 };

new MutationObserver(() => {
  for (const [selector, label] of Object.entries(LANDMARKS)) {
    const container = document.querySelector(`${selector}:not([role])`);
    container?.setAttribute("role", "region");
    container?.setAttribute("aria-label", label);
  }
  for (const [name, level] of Object.entries(LEVELS)) {
    for (const heading of document.querySelectorAll(`${name}:not([aria-level])`)) heading.setAttribute("aria-level", level);
  }
}).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
