"use strict";
// The terminal writes its styles into elements of its own, which the policy of our pages forbids. What it gets in their
// place hands the same rules to a style sheet of the script's making, which the policy allows.

const createElement = document.createElement.bind(document);

document.createElement = (name, options) => {
  if (name !== "style") return createElement(name, options);
  const stand = createElement("span");
  const sheet = new CSSStyleSheet();
  let rules = "";
  stand.hidden = true;
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(stand, "textContent", {
    get: () => rules,
    set: (text) => {
      rules = text;
      sheet.replaceSync(text);
    },
  });
  stand.remove = () => {
    sheet.replaceSync("");
    Element.prototype.remove.call(stand);
  };
  return stand;
};
