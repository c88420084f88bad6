"use strict";
// What somebody has filled in outlives the end of a login: the page has it again once the same person has signed in.
// It is kept for this tab and read once; passwords, and what no person has written, are never kept.
{
  const KEPT = "filled-in";
  const here = location.pathname + location.search;
  const person = document.querySelector(".account span")?.textContent;

  /** The fields of the forms that people fill in and send. */
  function* written() {
    for (const form of document.querySelectorAll("form.form[hx-post]")) {
      for (const [place, field] of [...form.elements].entries()) {
        const isOfSlider = field.closest(".field")?.querySelector("[data-texts]");
        if (isOfSlider || field.matches("input:not([type=hidden], [type=password], [type=file]), select, textarea")) {
          yield [`${form.getAttribute("hx-post")} ${place} ${field.name}`, field, isOfSlider];
        }
      }
    }
  }

  function note() {
    const text = document.createElement("p");
    text.className = "quiet";
    text.setAttribute("role", "status");
    text.textContent = document.body.dataset.restored;
    document.addEventListener("htmx:beforeSend", ({ target }) => target === text.parentElement && text.remove());
    return text;
  }

  function keep() {
    const all = [...written()];
    if (!all.some(([, field]) => isFilledIn(field))) return;
    // a slider that has come anew stands where it was moved to, in a list of its own
    const own = all.filter(([, field, isOfSlider]) => isOfSlider || isFilledIn(field));
    const fields = Object.fromEntries(own.map(([key, { value, checked }]) => [key, [value, checked]]));
    sessionStorage.setItem(KEPT, JSON.stringify({ here, person, fields }));
  }

  function restore() {
    const kept = JSON.parse(sessionStorage.getItem(KEPT));
    sessionStorage.removeItem(KEPT);
    if (kept?.here !== here || kept.person !== person) return;
    const fields = [...written()].filter(([key]) => key in kept.fields);
    for (const [key, field] of fields) [field.value, field.checked] = kept.fields[key];
    for (const [, field] of fields) {
      for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
    }
    for (const form of new Set(fields.map(([, field]) => field.form))) form.prepend(note());
  }

  document.addEventListener("htmx:beforeOnLoad", ({ detail: { xhr } }) => {
    if (xhr.status === 401 || xhr.getResponseHeader("HX-Refresh")) keep();
  });
  // What follows from a choice is asked for by htmx, which is ready by then.
  document.addEventListener("DOMContentLoaded", () => setTimeout(restore));
}
