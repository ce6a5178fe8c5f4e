// The queues at work, and the panel that breaks things. What changes is also said in words.

import { count, plural, rate } from "./words.js";
import { send } from "./send.js";
import { say } from "./say.js";

const history = 40; // seconds that a curve shows
const told = 6; // lines of the story that stay

// startWorks returns a function that adds a line to the story.
export function startWorks(aside) {
  if (!aside) return () => {};
  const story = newStory(aside.querySelector("[data-story]"));
  const queues = new Map();
  for (const row of aside.querySelectorAll("[data-queue]")) queues.set(row.dataset.queue, newQueue(row, story));
  const workers = newWorkers(aside.querySelector("[data-workers]"), story);
  const faults = newFaults([...aside.querySelectorAll("[data-fault]")], story);
  aside.querySelector("[data-damage]")?.addEventListener("submit", (event) => {
    event.preventDefault();
    post(event.target, story, () => story("A slice was damaged as by a faulty disk. Its message goes to the poison queue of slicerequest: press Redrive there, and the picture is finished."));
  });
  const outage = aside.querySelector("[data-outage]");
  let answered = true;
  let mended = false; // whether an outage of before was made here, and told as such

  const set = (name, text) => (aside.querySelector(`[data-${name}]`).textContent = text);

  let events = null;

  function show(status) {
    for (const one of status.queues ?? []) queues.get(one.name)?.show(one);
    set("requests", count(status.requests));
    workers(status.processors ?? []);
    faults(status);
    const answers = status.answers;
    outage.hidden = answers;
    outage.textContent = status.busy ? "The queue server answers 503 to everyone." : "The queue server does not answer. Everyone tries again.";
    if (answers !== answered && !status.busy && !mended) story(answers ? "The queue server answers again." : "The queue server does not answer. Nothing is lost: messages wait in it.");
    mended = Boolean(status.busy);
    answered = answers;
  }

  // A browser has few connections to a server: pages that nobody sees do not hold one.
  function listen() {
    if (document.hidden) {
      events?.close();
      events = null;
      return;
    }
    if (events) return;
    events = new EventSource(aside.dataset.works);
    events.addEventListener("status", (event) => show(JSON.parse(event.data)));
    events.addEventListener("error", () => {
      outage.hidden = false;
      outage.textContent = "The page has lost its server, and tries again.";
      if (events?.readyState === EventSource.CLOSED) retry();
    });
  }

  // A server that answers with an error ends the stream for good; one that is started again needs a moment.
  function retry() {
    events?.close();
    events = null;
    setTimeout(listen, 2000);
  }
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => {
    events?.close();
    events = null;
  });
  addEventListener("pageshow", listen); // also one that comes back as it was
  listen();
  return story;
}

function newStory(list) {
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return (text) => {
    const line = document.createElement("li");
    const time = document.createElement("time");
    const words = document.createElement("span");
    time.textContent = clock.format(new Date());
    words.textContent = text;
    line.append(time, words);
    list.prepend(line);
    while (list.children.length > told) list.lastChild.remove();
    say(text);
  };
}

function newQueue(row, story) {
  const part = (name) => row.querySelector(`[data-${name}]`);
  const name = row.dataset.queue;
  const curve = Array(history).fill(0);
  let most = 8; // the full bar; it grows with the deepest queue seen
  let poison = Number(part("count").textContent); // what was there before the page is no news

  part("poison").addEventListener("submit", (event) => {
    event.preventDefault();
    post(event.target, story, () => story(`${plural(poison, "poison message")} of ${name} put back to work.`));
  });

  return {
    show(q) {
      most = Math.max(most, q.depth);
      part("depth").textContent = count(q.depth);
      part("bar").max = most;
      part("bar").value = q.depth;
      part("figures").textContent = `${rate(q.perSecond)}/s`;
      row.classList.toggle("busy", q.depth > 0);
      part("count").textContent = count(q.poison);
      part("poison").hidden = !q.poison;
      if (q.poison > poison) story(`${plural(q.poison - poison, "message")} of ${name} went to its poison queue.`);
      poison = q.poison;
      curve.push(q.perSecond ?? 0);
      if (curve.length > history) curve.shift();
      draw(row.querySelector(".spark"), curve);
    },
  };
}

function draw(svg, curve) {
  const top = Math.max(1, ...curve);
  const points = curve.map((v, i) => `${(60 - ((curve.length - 1 - i) * 60) / (history - 1)).toFixed(1)},${(19 - (v / top) * 17).toFixed(1)}`);
  const line = points.join("L");
  svg.querySelector(".over").setAttribute("d", `M${line}`);
  svg.querySelector(".under").setAttribute("d", `M${line}L60,20L${points[0].split(",")[0]},20Z`);
}

const titled = (p) => `Processor ${p.id + 1}`;

// newWorkers shows the processors, which are as many as at the start.
function newWorkers(list, story) {
  const rows = new Map();
  for (const item of list.querySelectorAll("[data-worker]")) {
    const id = Number(item.dataset.worker);
    const form = item.querySelector("form");
    const row = { item, pid: 0, alive: false };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      post(form, story, () => story(`${titled({ id })} was killed: SIGKILL to process ${row.pid}, without a chance to say goodbye.`));
    });
    rows.set(id, row);
  }
  return (processors) => {
    for (const p of processors) {
      const row = rows.get(p.id);
      const alive = p.pid > 0;
      if (row.pid && alive && p.pid !== row.pid) story(`${titled(p)} is back, as process ${p.pid}.`);
      if (row.alive && !alive) story(`${titled(p)} has ended. A slice that it had not finished is received again when its lease ends.`);
      Object.assign(row, { pid: alive ? p.pid : row.pid, alive });
      row.item.classList.toggle("gone", !alive);
      row.item.querySelector(".state").textContent = p.state;
      row.item.querySelector("button").disabled = !alive;
    }
  };
}

const effects = {
  busy: ["The queue server answers every request with 503. Everyone waits, longer each time, and tries again.", "The queue server answers as it should again."],
  slow: ["Every slice takes longer now. Watch slicerequest fill.", "Slices are as fast as they can be again."],
};

function newFaults(forms, story) {
  const now = {};
  for (const form of forms) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const body = new FormData(form);
      body.set("on", now[form.dataset.fault] ? "0" : "1");
      post(form, story, () => {}, body);
    });
  }
  return (faults) => {
    for (const form of forms) {
      const kind = form.dataset.fault;
      const on = Boolean(faults[kind]);
      form.querySelector("button").setAttribute("aria-pressed", on);
      if (kind in now && on !== now[kind]) story(effects[kind][on ? 0 : 1]);
      now[kind] = on;
    }
  };
}

async function post(form, story, then, body = new FormData(form)) {
  try {
    await send(form.action, body);
    then();
  } catch (error) {
    story(error.message);
  }
}
