/** Elements, numbers and texts. Content of documents becomes text nodes, never markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Create an element; the attribute `on` holds listeners, `false` and `null` omit an attribute. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Create an SVG element, like `h`. */
export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, { on = {}, ...attributes } = {}, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Create a table from headings (texts) and rows (elements). */
export function table(heads, rows, attributes = {}) {
  const head = (text) => h("th", { scope: "col" }, text);
  return h("table", attributes, h("thead", {}, h("tr", {}, ...heads.map(head))), h("tbody", {}, ...rows));
}

/** Create a description list from names and values. */
export function described(told, attributes) {
  const pair = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return h("dl", attributes, ...Object.entries(told).map(pair));
}

export const byId = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => whole.format(value);
export const decimal = (value) => short.format(value);
export const score = (value) => value.toFixed(3);
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Format a duration in milliseconds, or in seconds from 1,000 ms. */
export const duration = (ms) => (ms < 1000 ? `${short.format(ms)} ms` : `${short.format(ms / 1000)} s`);

/** Create a time element with an instant in local time. */
export function moment(text) {
  const at = new Date(text);
  return h("time", { datetime: text }, Number.isNaN(at.valueOf()) ? text : at.toLocaleString("en"));
}

/** Show a dialog and remove it when it closes; resolves to the value of the button pressed. */
export function asked(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}
