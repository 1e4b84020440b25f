// Says so while the gateway does not answer: what is shown is old then.
(() => {
  const lost = document.getElementById("lost");
  const say = (text) => { lost.textContent = text; lost.hidden = text === ""; };
  document.addEventListener("htmx:sendError", () => say("The gateway does not answer. This page is not up to date."));
  document.addEventListener("htmx:responseError", (event) =>
    say(`The gateway answered with ${event.detail.xhr.status}. This page may not be up to date.`));
  document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) say(""); });
})();

// Asks before a form that says so is sent.
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question !== undefined && !confirm(question)) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}, true);
