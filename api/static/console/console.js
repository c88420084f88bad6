"use strict";
// What our pages need beside htmx: the token of the login, problems beside their fields, a slider that says its value.

const token = document.querySelector('meta[name="csrf-token"]')?.content ?? "";
const notice = document.getElementById("notice");
// A form that is sent as soon as somebody chooses something.
const AT_ONCE = 'form[hx-trigger="change"]';

// What somebody is about to choose or has filled in, in a part that changes, stays, and so does what is wrong with it.
Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) =>
  !(old.matches?.("input, select, textarea") && (old === document.activeElement || isFilledIn(old))) &&
  !old.classList?.contains("canvas");
Idiomorph.defaults.callbacks.beforeNodeRemoved = (old) => !old.matches?.(".field > .problem");

/** Whether a field is another one than the page has sent it. */
function isFilledIn(field) {
  if (!field.options) return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  const sent = [...field.options].find((option) => option.defaultSelected) ?? field.options[0];
  return !sent?.selected;
}

// With keys one comes past choices on the way to another: what is sent at once then waits for Enter, or until it is left.
let byKeys, held;
function send() {
  const choice = held;
  held = undefined;
  choice?.dispatchEvent(new Event("change", { bubbles: true }));
}
document.addEventListener("keydown", ({ target, key }) => {
  byKeys = key === "Enter" ? undefined : target;
  if (key === "Enter" && target === held) send();
});
document.addEventListener("pointerdown", () => (byKeys = undefined));
document.addEventListener("focusout", ({ target }) => target === held && send());
document.addEventListener(
  "change",
  (event) => {
    const { target, isTrusted } = event;
    if (!isTrusted || target !== byKeys || !target.closest('[hx-trigger="change"]')) return;
    event.stopPropagation();
    held = target;
  },
  true,
);

// Who clicks twice means it once; a part that has changed meanwhile may show another button there by then.
document.addEventListener(
  "click",
  (event) => event.detail > 1 && event.target.closest("form button") && event.preventDefault(),
  true,
);

document.addEventListener("htmx:configRequest", ({ detail }) => {
  detail.headers["X-CSRF-Token"] = token;
  const version = detail.elt.dataset.version;
  if (version && detail.triggeringEvent?.type !== "refresh") detail.headers["X-Seen"] = version;
});

// Nobody looks at a page that is hidden.
document.addEventListener("htmx:beforeRequest", (event) => {
  const { version, gone } = event.detail.elt.dataset;
  if (gone || (document.hidden && version)) event.preventDefault();
});

document.addEventListener("htmx:beforeSend", ({ detail }) => {
  if (detail.elt.matches("form")) forget(detail.elt);
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (!detail.successful) return;
  // A part that brings itself up to date shows that the site answers again, and answers nothing that somebody sent.
  if (!detail.elt.dataset.version || notice.dataset.silent) notice.hidden = true;
  if (detail.elt.dataset.reset) detail.elt.reset();
  if (detail.elt.matches("[data-version] form")) keep(detail.elt);
});

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, ({ detail }) => sayNothingCame(detail.elt));
}

document.addEventListener("htmx:responseError", ({ detail }) => {
  const { status, responseText } = detail.xhr;
  if (status === 401) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    return;
  }
  // The edge, which knows no language, answers in place of an API that does not.
  if (status === 502 || status === 504) return sayNothingCame(detail.elt);
  // What may not be seen any more, or is not there, is not asked for again.
  if ((status === 403 || status === 404) && detail.elt.dataset.version) detail.elt.dataset.gone = "true";
  if (detail.elt.matches(AT_ONCE)) detail.elt.reset();
  // What says by itself how things stand does so again later; what it said was of something else.
  if (detail.elt.dataset.quiet) return detail.elt.replaceChildren();
  let problems;
  try {
    problems = JSON.parse(responseText).errors;
  } catch {
    problems = [{ detail: document.body.dataset.silent, hint: "" }];
  }
  const form = detail.elt.closest("form");
  const rest = problems.filter((problem) => !(form && beside(form, problem)));
  const asksAgain = detail.elt.dataset.version && !detail.elt.dataset.gone;
  if (rest.length) say(rest.map(words).join("\n"), asksAgain ? "true" : "");
  form?.querySelector("[aria-invalid]")?.focus();
});

/** A part asks again by itself; what somebody sent has to be sent again, and that stays to be read. */
function sayNothingCame(asker) {
  const { silent, unsent } = document.body.dataset;
  if (asker.matches("form")) say(unsent);
  else if (notice.hidden || notice.dataset.silent) say(silent, "true");
  if (asker.matches(AT_ONCE)) asker.reset();
}

/** What was chosen holds: to that a form goes back when another choice is refused. What was written is done. */
function keep(form) {
  for (const option of form.querySelectorAll("option")) option.defaultSelected = option.selected;
  form.reset();
}

function words({ detail, hint }) {
  return [detail, hint].filter(Boolean).join(": ");
}

function say(text, silent = "") {
  notice.textContent = text;
  notice.dataset.silent = silent;
  notice.hidden = false;
}

/** Writes a problem beside the field that it is about; false where the form has no such field, or no place for it. */
function beside(form, problem) {
  const [, name] = (problem.pointer ?? `/${problem.where ?? problem.parameter ?? ""}`).split(/[/.]/);
  const seen = [...form.elements].filter((element) => element.type !== "hidden");
  const field = seen.find((element) => name && (element.name === name || element.dataset.field === name));
  const place = field?.closest(".field");
  if (!place) return false;
  const text = document.createElement("span");
  text.className = "problem";
  text.id = `problem-${name}`;
  text.textContent = words(problem);
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", text.id);
  place.append(text);
  unfold(field);
  return true;
}

/** What is wrong is seen, even in a part that is folded up. */
function unfold(field) {
  const folded = field.closest("details");
  if (folded) folded.open = true;
}
document.addEventListener("invalid", ({ target }) => unfold(target), true);

function forget(form) {
  for (const problem of form.querySelectorAll(".problem")) problem.remove();
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  notice.hidden = true;
}

/** A slider over a list of values says the one that it stands on. */
function tell(slider) {
  const output = slider.parentElement.querySelector("output");
  output.textContent = slider.dataset.texts.split("|")[slider.valueAsNumber];
  slider.setAttribute("aria-valuetext", output.textContent);
}

// On a narrow screen the entry of the page may be past the edge of the list of pages.
for (const entry of document.querySelectorAll(".bar [aria-current]")) {
  entry.scrollIntoView({ block: "nearest", inline: "center" });
}

for (const slider of document.querySelectorAll("input[data-texts]")) tell(slider);
document.addEventListener("input", ({ target }) => {
  target.removeAttribute("aria-invalid");
  if (target.name) document.getElementById(target.getAttribute("aria-describedby"))?.remove();
  if (target.matches("input[data-texts]")) tell(target);
});
// A slider that has come anew may stand elsewhere, which is as if somebody had moved it.
document.addEventListener("htmx:afterSwap", ({ detail }) => {
  const slider = document.querySelector(`#${CSS.escape(detail.target.id)} input[data-texts]`);
  slider?.dispatchEvent(new Event("input", { bubbles: true }));
});

// A log that is read at its end goes on at its end.
let atEnd = true;
function toEnd() {
  const log = document.querySelector("pre.log");
  if (log && atEnd) log.scrollTop = log.scrollHeight;
}
toEnd();
document.addEventListener("htmx:afterSettle", toEnd);
document.addEventListener("htmx:beforeSwap", () => {
  const log = document.querySelector("pre.log");
  atEnd = !log || log.scrollHeight - log.scrollTop - log.clientHeight < 8;
});
