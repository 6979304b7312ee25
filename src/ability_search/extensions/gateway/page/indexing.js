/** The index view: sends dropped or chosen files to the gateway and shows the progress. */

import { post } from "./api.js";
import { byId, count, duration, h, plural } from "./dom.js";

const BATCH_FILES = 32;
const BATCH_BYTES = 4 * 1024 * 1024;
/** Base64 takes a third more, and a request has at most 32 MiB by default. */
const FILE_BYTES = 23 * 1024 * 1024;
const KEPT = 30;
const REFUSED = new Set(["invalid_input", "too_large"]);
const ENDS = { completed: "done", failed: "failed" };

const jobs = new Map();
let indexed = () => {};

/** Set up the form; `listener` is called after something was indexed. */
export function start(listener) {
  indexed = listener;
  const [form, drop, files] = [byId("index-form"), byId("drop"), byId("files")];
  form.addEventListener("submit", (event) => event.preventDefault());
  files.addEventListener("change", () => {
    take([...files.files]);
    files.value = "";
  });
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragenter" || kind === "dragover");
    });
  }
  drop.addEventListener("drop", (event) => take([...event.dataTransfer.files]));
  // Without this, the browser would open a file dropped outside the target.
  for (const kind of ["dragover", "drop"]) {
    addEventListener(kind, (event) => event.preventDefault());
  }
}

/** Show an event of a job of any caller. */
export function progress(name, data) {
  if (typeof data.jobId !== "string") return;
  const job = jobs.get(data.jobId) ?? listed(data.jobId, data.collection, "a job of another caller");
  if (job.ended) return;
  if (name === "progress") {
    job.meter(data.done, data.total);
    const before = job.sent ? `${count(job.sent)} sent; ` : "";
    job.say(`${before}${data.stage}, ${count(data.done)} of ${plural(data.total, "document")}`);
  } else if (!job.own) {
    job.end(ENDS[name] ?? name, data.error ?? "Done.");
    indexed();
  }
}

async function take(files) {
  const target = byId("target");
  const message = byId("index-message");
  message.textContent = "";
  if (!files.length) return;
  if (!target.checkValidity()) {
    message.textContent = "Enter a collection name first: 1 to 64 letters, digits, . _ -, first a letter or digit";
    target.focus();
    return;
  }
  const id = newId();
  const name = target.value.normalize();
  const job = listed(id, name, plural(files.length, "file"), { own: true });
  await send(job, id, name, files);
  indexed();
}

async function send(job, id, collection, files) {
  const total = { added: 0, updated: 0, unchanged: 0, chunks: 0 };
  const began = performance.now();
  let failed = 0;
  const refuse = ({ source, error }) => {
    failed += 1;
    job.complain(`${source}: ${error}`);
  };
  try {
    for await (const batch of batches(files, refuse)) {
      for await (const answer of answers({ collection, jobId: id }, batch)) {
        for (const key of Object.keys(total)) total[key] += answer[key] ?? 0;
        answer.failed.forEach(refuse);
      }
      job.sent += batch.length;
    }
  } catch (error) {
    job.end("failed", [error.message, error.hint].filter(Boolean).join(" "));
    return;
  }
  const { added, updated, unchanged, chunks } = total;
  const parts = [`${added} added`, `${updated} updated`, `${unchanged} unchanged`];
  if (failed) parts.push(`${failed} failed`);
  const took = duration(performance.now() - began);
  job.end(failed ? "failed" : "done", `${parts.join(", ")}; ${plural(chunks, "chunk")} in ${took}`);
}

/** Index files in one call; if it is refused as a whole, in one call per file. */
async function* answers(input, files) {
  try {
    yield await post("files", { ...input, files });
  } catch (error) {
    if (!REFUSED.has(error.code)) throw error;
    const [{ source }] = files;
    if (files.length === 1) yield { failed: [{ source, error: error.message }] };
    else for (const file of files) yield* answers(input, [file]);
  }
}

/** Yield the readable files with their data in Base64, in batches of limited size. */
async function* batches(files, refuse) {
  let batch = [];
  let bytes = 0;
  for (const file of files) {
    let data;
    try {
      if (file.size > FILE_BYTES) throw new Error("larger than 23 MiB");
      data = await base64(file);
    } catch (error) {
      refuse({ source: file.name, error: error.message });
      continue;
    }
    if (batch.length && (batch.length >= BATCH_FILES || bytes + file.size > BATCH_BYTES)) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push({ source: file.name, data });
    bytes += file.size;
  }
  if (batch.length) yield batch;
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error("cannot be read; it may be a directory"));
    reader.readAsDataURL(file);
  });
}

/** Add a job to the list. */
function listed(id, collection, what, { own = false } = {}) {
  const bar = h("progress", { max: 1, "aria-label": `Progress of ${what}` });
  const state = h("p", { class: "small" }, "sent");
  const complaints = h("ul", { class: "small bad" });
  const title = h("p", {}, h("strong", {}, collection ?? "?"), ` \u00b7 ${what}`);
  const element = h("li", { class: "job" }, title, bar, state, complaints);
  const job = {
    own,
    sent: 0,
    ended: false,
    meter: (done, total) => Object.assign(bar, { max: Math.max(1, total), value: done }),
    say: (text) => (state.textContent = text),
    complain: (text) => complaints.append(h("li", {}, text)),
    end(how, text) {
      job.ended = true;
      bar.remove();
      element.classList.add(how);
      state.textContent = text;
      if (own) byId("news").textContent = `${collection}, ${what}: ${text}`;
    },
  };
  jobs.set(id, job);
  byId("jobs").prepend(element);
  byId("no-jobs").hidden = true;
  if (jobs.size > KEPT) jobs.delete(jobs.keys().next().value);
  while (byId("jobs").children.length > KEPT) byId("jobs").lastElementChild.remove();
  return job;
}

function newId() {
  // randomUUID() exists only in secure contexts.
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
