"use strict";

const element = (name, properties = {}, ...children) => {
  const found = Object.assign(document.createElement(name), properties);
  found.append(...children);
  return found;
};

const tryOut = (path, method, operation) => {
  const inputs = operation.parameters.map((parameter) => {
    const input = element("input", { placeholder: parameter.required ? "required" : "" });
    return { parameter, input };
  });
  const kinds = Object.keys(operation.requestBody?.content ?? {});
  const kind = element("select", {}, ...kinds.map((one) => element("option", { value: one, textContent: one })));
  const body = element("textarea", { placeholder: "body" });
  const answer = element("pre", { hidden: true });
  const send = element("button", { type: "button", textContent: "Send" });
  send.addEventListener("click", async () => {
    let address = path;
    const query = new URLSearchParams();
    const headers = {};
    const token = document.getElementById("token").value;
    if (token) headers.authorization = `Bearer ${token}`;
    for (const { parameter, input } of inputs) {
      if (!input.value) continue;
      if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (parameter.in === "query") query.set(parameter.name, input.value);
      else headers[parameter.name] = input.value;
    }
    if (kinds.length) headers["content-type"] = kind.value;
    const text = query.toString();
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const response = await fetch(address + (text ? `?${text}` : ""), {
        method: method.toUpperCase(), headers, body: kinds.length ? body.value : undefined,
      });
      const content = await response.text();
      let shown = content;
      try { shown = JSON.stringify(JSON.parse(content), null, 2); } catch { /* it is not JSON */ }
      answer.textContent = `${response.status}\n${shown}`;
    } catch (error) {
      answer.textContent = String(error);
    }
  });
  const fields = inputs.map(({ parameter, input }) =>
    element("label", {}, element("span", { textContent: `${parameter.name} (${parameter.in})` }), input));
  return element("div", {}, ...fields, ...(kinds.length ? [kind, body] : []), send, answer);
};

const show = (description) => {
  const groups = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const head = element("summary", {}, element("span", { className: "method", textContent: method.toUpperCase() }),
        element("code", { textContent: path }), ` ${operation.summary}`);
      const details = element("details", {}, head);
      details.addEventListener("toggle", () => details.append(tryOut(path, method, operation)), { once: true });
      const tag = operation.tags[0];
      groups.set(tag, [...(groups.get(tag) ?? []), details]);
    }
  }
  document.getElementById("operations").replaceChildren(...[...groups].sort().map(([tag, found]) =>
    element("section", {}, element("h2", { textContent: tag }), ...found)));
};

fetch("/openapi.json").then((response) => response.json()).then(show);
