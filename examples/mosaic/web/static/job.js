// The page of a job: the mosaic grows with the events of the server, and can be explored when it is finished.

import { count, plural, seconds } from "./words.js";
import { send } from "./send.js";
import { newImage, Viewer } from "./viewer.js";
import { say } from "./say.js";

const ended = (state) => state === "done" || state === "failed";

export function startJob(main, story) {
  if (!main) return;
  const part = (id) => document.getElementById(id);
  const base = `/jobs/${encodeURIComponent(main.dataset.job)}`;
  const cells = newCells(base);
  const card = newCard(part("card"), cells, () => viewer.draw());
  const viewer = new Viewer(part("view"), {
    onCell: (cell, spoken) => card.show(cell, spoken),
    onChange: zoomed,
    onPaint: () => card.place((cell) => viewer.boxOf(cell)),
  });
  let job = null;
  const begun = new Set(); // slices that are shown, or on their way
  let quarter = 0; // quarters of the work that were announced
  let original = false;
  let zooming = false;

  let events = null;
  let gone = false; // whether it was deleted

  // Each connection begins with the whole job, so nothing is missed between two. A browser has few connections to a server:
  // pages that nobody sees do not hold one.
  function listen() {
    if (document.hidden) {
      events?.close();
      events = null;
      return;
    }
    if (events || gone || job?.state === "done") return;
    events = new EventSource(`${base}/events`);
    events.addEventListener("snapshot", (event) => show(JSON.parse(event.data)));
    events.addEventListener("error", () => {
      if (!ended(job?.state)) part("doing").textContent = "The page has lost its server, and tries again. No slice that is stored is lost.";
      if (events?.readyState === EventSource.CLOSED) retry();
    });
  }

  // A server that answers with an error ends the stream for good. It does so for a mosaic that another tab deleted, too.
  async function retry() {
    events = null;
    const answer = await fetch(base, { headers: { Accept: "application/json" } }).catch(() => null);
    if (answer?.status === 404) {
      gone = true;
      part("progress").hidden = true;
      part("doing").textContent = "This mosaic was deleted.";
      return;
    }
    setTimeout(listen, 2000);
  }
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => {
    events?.close();
    events = null;
  });
  addEventListener("pageshow", listen); // also one that comes back as it was

  function show(now) {
    const before = job?.state;
    job = now;
    viewer.open(job);
    if (!original) {
      original = true;
      newImage(`${base}/original`, (image) => viewer.original(image), () => (original = false));
    }
    job.slices.forEach((s, i) => s.stored && addSlice(i));
    progress();
    const wrong = job.error || job.problem;
    if (part("failed").textContent !== wrong) part("failed").textContent = wrong ?? "";
    part("failed").hidden = !wrong;
    if (job.state === "done") finish(before);
    if (job.state === "failed") fail(before);
    if (ended(job.state)) events?.close();
  }

  function addSlice(i) {
    if (begun.has(i) || !job.slices?.[i]) return;
    begun.add(i);
    const { first, end } = job.slices[i];
    newImage(`${base}/slices/${i}`, (image) => viewer.slice(i, image, first, end), () => begun.delete(i));
  }

  function progress() {
    const all = job.slices.length;
    const stored = job.stored;
    const bar = part("progress");
    bar.hidden = ended(job.state);
    bar.max = Math.max(1, all);
    if (job.state === "waiting" || job.state === "measuring") bar.removeAttribute("value");
    else bar.value = stored;
    part("doing").textContent = doing(job, stored, all);
    const reached = all ? Math.floor((4 * stored) / all) : 0;
    if (reached > quarter && reached < 4 && !ended(job.state)) say(`${reached * 25} per cent of the mosaic is there.`);
    quarter = reached;
    main.dataset.state = job.state;
    main.dataset.stored = stored;
  }

  function finish(before) {
    part("download").hidden = false;
    part("compare").hidden = false;
    part("bill").hidden = false;
    part("fact-size").textContent = `${count(job.mosaicWidth)} × ${count(job.mosaicHeight)}`;
    part("fact-cells").textContent = `${count(job.cols)} × ${count(job.rows)}`;
    part("fact-tiles").textContent = `${count(job.distinct)} of ${count(job.tiles)}`;
    if (before && before !== "done") story(`The mosaic of ${job.name} is finished.`);
    if (zooming) return;
    zooming = true;
    viewer.previews((x, y) => cells.preview(x, y, () => viewer.draw()));
    deepZoom();
  }

  async function deepZoom() {
    try {
      const response = await fetch(`${base}/zoom`);
      if (!response.ok) throw new Error(String(response.status));
      const { tile, levels } = await response.json();
      viewer.zoom(tile, levels, (square) => `${base}/zoom/${square}`);
    } catch {
      setTimeout(deepZoom, 2000); // the slices are shown meanwhile
    }
  }

  function fail(before) {
    if (before && before !== "failed") story(`The mosaic of ${job.name} could not be made.`);
  }

  function zoomed({ fits, most }) {
    for (const button of document.querySelectorAll("[data-zoom]")) {
      // Not disabled, which would take the focus from who zooms with the keyboard.
      button.setAttribute("aria-disabled", button.dataset.zoom === "in" ? most : fits);
    }
  }
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ({ in: () => viewer.zoomBy(1.8), out: () => viewer.zoomBy(1 / 1.8), fit: () => viewer.fit() })[button.dataset.zoom]());
  }

  const against = part("against");
  against.addEventListener("input", () => {
    const n = Number(against.value);
    viewer.compare(n);
    against.setAttribute("aria-valuetext", n === 0 ? "the mosaic alone" : n === 100 ? "the original alone" : `the original on ${n} per cent, from the left`);
  });

  listen();
}

function doing(job, stored, all) {
  switch (job.state) {
    case "waiting":
      return job.note || "Waiting for its turn.";
    case "measuring":
      return job.note || "The picture is measured, and a tile is chosen for every cell.";
    case "working":
      return `${count(stored)} of ${plural(all, "slice")} are finished.`;
    case "composing":
      return "All slices are there. The controller puts them together.";
    case "done":
      return `Finished in ${seconds(job.seconds)}.`;
    default:
      return "This mosaic could not be made.";
  }
}

// newCells looks up which photograph is in a cell, and keeps the answers.
function newCells(base) {
  const known = new Map();
  const pictures = new Map();
  const limit = 2000;
  const kept = (map, key, make) => {
    if (!map.has(key)) {
      if (map.size >= limit) map.delete(map.keys().next().value);
      map.set(key, make());
    }
    return map.get(key);
  };
  const look = (x, y) => kept(known, `${x}/${y}`, () => {
    const cell = { found: null };
    cell.answer = fetch(`${base}/cells/${x}/${y}`).then((r) => (r.ok ? r.json() : Promise.reject(new Error(String(r.status))))).then((found) => (cell.found = found));
    cell.answer.catch(() => known.delete(`${x}/${y}`));
    return cell;
  });
  return {
    look: (x, y) => look(x, y).answer,
    preview(x, y, then) {
      const cell = look(x, y);
      if (!cell.found) {
        cell.answer.then(then, () => {});
        return null;
      }
      const image = kept(pictures, cell.found.preview, () => newImage(cell.found.preview, then));
      return image.complete && image.naturalWidth ? image : null;
    },
  };
}

// newCard shows the photograph of a cell beside it.
function newCard(card, cells, redraw) {
  const image = card.querySelector("img");
  const words = card.querySelector("p");
  let wanted = null;
  let timer = 0;

  function hide() {
    clearTimeout(timer);
    wanted = null;
    card.hidden = true;
  }

  function place(boxOf) {
    if (card.hidden || !wanted) return;
    const box = boxOf(wanted);
    const room = card.parentElement;
    const gap = 12;
    const right = box.x + box.side + gap;
    const left = box.x - gap - card.offsetWidth;
    const x = right + card.offsetWidth + gap <= room.clientWidth ? right : left;
    const y = box.y + box.side / 2 - card.offsetHeight / 2;
    const within = (v, size, length) => Math.max(gap, Math.min(length - size - gap, v));
    card.style.left = `${within(x, card.offsetWidth, room.clientWidth)}px`;
    card.style.top = `${within(y, card.offsetHeight, room.clientHeight)}px`;
  }

  return {
    place,
    show(cell, spoken) {
      clearTimeout(timer);
      wanted = cell;
      if (!cell) {
        hide();
        return;
      }
      // A pointer that passes over a thousand cells asks for none of them.
      timer = setTimeout(async () => {
        try {
          const found = await cells.look(cell.x, cell.y);
          if (wanted !== cell) return;
          image.src = found.preview;
          words.textContent = found.name;
          card.hidden = false;
          redraw();
          if (spoken) say(`${found.name}, column ${cell.x + 1}, row ${cell.y + 1}`);
        } catch {
          if (wanted === cell) card.hidden = true;
        }
      }, 90);
    },
  };
}
