"use strict";
const signIn = document.getElementById("sign-in");
const newPassword = document.getElementById("new-password");
const problem = document.getElementById("problem");
const entrance = document.querySelector("main");
let token = document.querySelector('meta[name="csrf-token"]')?.content ?? "";

/** Sends a form's answer and returns what came of it; undefined where it was refused, which the page then says. */
async function send(form, path, body) {
  const button = form.querySelector("button");
  button.disabled = true;
  problem.textContent = "";
  try {
    const answer = await fetch(`/api/v1/auth/${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": token },
      body: JSON.stringify(body),
    });
    const said = await answer.json();
    if (answer.ok) return said;
    problem.textContent = said.errors.map((error) => [error.detail, error.hint].filter(Boolean).join(": ")).join("\n");
  } catch {
    problem.textContent = entrance.dataset.silent;
  } finally {
    button.disabled = false;
  }
}

function goOn() {
  location.replace(entrance.dataset.destination);
}

signIn.addEventListener("submit", async (event) => {
  event.preventDefault();
  const known = await send(signIn, "login", Object.fromEntries(new FormData(signIn)));
  if (!known) return;
  token = known.csrf_token;
  if (!known.must_change_password) return goOn();
  signIn.hidden = true;
  newPassword.hidden = false;
  newPassword.querySelector("input").focus();
});

newPassword.addEventListener("submit", async (event) => {
  event.preventDefault();
  const written = Object.fromEntries(new FormData(newPassword));
  if (written.new !== written.again) {
    problem.textContent = entrance.dataset.differ;
    return;
  }
  if (await send(newPassword, "password", { password: written.new })) goOn();
});
