// The form of a new mosaic: a picture is dropped or chosen and shown, dials say what they mean.

import { count, megapixels } from "./words.js";
import { send } from "./send.js";
import { say } from "./say.js";

const niceCells = 20_000; // of a mosaic that shows both the picture and its tiles

export function startForm(form) {
  if (!form) return;
  const maxInput = Number(form.dataset.pixels);
  const maxOutput = Number(form.dataset.output);
  const part = (id) => document.getElementById(id);
  const shown = part("shown");
  const file = part("picture");
  const ownButton = part("builtin");
  const sample = { src: shown.src, alt: shown.alt, name: part("picture-name").textContent };
  let chosen = false; // whether the user has set the scale
  let address = ""; // of the chosen picture, to be given back

  const say0 = (text) => (part("picture-name").textContent = text);

  function show(picture) {
    URL.revokeObjectURL(address);
    refuse("");
    ownButton.hidden = !picture;
    if (!picture) {
      address = "";
      file.value = "";
      shown.hidden = false;
      Object.assign(shown, { src: sample.src, alt: sample.alt });
      say0(sample.name);
      return;
    }
    address = URL.createObjectURL(picture);
    Object.assign(shown, { src: address, alt: `The chosen picture: ${picture.name}` });
    say0(picture.name);
  }

  shown.addEventListener("load", () => {
    shown.hidden = false;
    suggest();
    describe();
  });
  // Browsers cannot show every picture that the server reads, such as TIFF.
  shown.addEventListener("error", () => {
    shown.hidden = true;
    say0(`${file.files[0]?.name ?? "The picture"} (your browser cannot show it, the server may)`);
    describe();
  });
  file.addEventListener("change", () => show(file.files[0]));
  ownButton.addEventListener("click", () => {
    show(null);
    file.focus();
  });

  drop(part("drop"), (files) => {
    const one = new DataTransfer();
    one.items.add(files[0]); // the server takes one picture
    file.files = one.files;
    show(file.files[0]);
    say(`${file.files[0].name} is chosen.`);
  });

  form.elements.scale.addEventListener("input", () => (chosen = true));
  function tell(input) {
    const output = form.querySelector(`output[for=${input.id}]`);
    output.textContent = input.value + output.dataset.unit;
    input.setAttribute("aria-valuetext", output.textContent);
  }
  for (const input of form.querySelectorAll("input[type=range]")) {
    input.addEventListener("input", () => {
      tell(input);
      describe();
    });
    tell(input);
  }
  form.elements.tile.addEventListener("change", () => {
    suggest();
    describe();
  });
  if (shown.complete) suggest();

  // suggest sets the scale for a picture of this size, until the user does.
  function suggest() {
    if (chosen || !shown.naturalWidth) return;
    const scale = form.elements.tile.value * Math.sqrt(niceCells / (shown.naturalWidth * shown.naturalHeight));
    form.elements.scale.value = Math.min(8, Math.max(1, Math.round(2 * scale) / 2));
    tell(form.elements.scale);
  }

  // describe says what the mosaic will be, so that the dials mean something.
  function describe() {
    const [w, h] = shown.hidden ? [0, 0] : [shown.naturalWidth, shown.naturalHeight];
    const tile = Number(form.elements.tile.value);
    const scale = Number(form.elements.scale.value);
    const cell = Math.max(1, tile / scale);
    const [cols, rows] = [Math.floor(w / cell), Math.floor(h / cell)];
    if (!cols || !rows) {
      part("plan").textContent = "";
      return;
    }
    const pixels = cols * rows * tile * tile;
    let text = `${count(cols * rows)} tiles, ${count(cols * tile)} × ${count(rows * tile)} pixels.`;
    if (pixels > maxOutput) text = `That would be ${megapixels(pixels)} and the limit is ${megapixels(maxOutput)}: choose a smaller scale.`;
    if (w * h > maxInput) text = `The picture has ${megapixels(w * h)} and the limit is ${megapixels(maxInput)}.`;
    part("plan").textContent = text;
  }

  function refuse(text) {
    part("refused").textContent = text;
    part("refused").hidden = !text;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    refuse("");
    const body = new FormData(form);
    if (!file.files.length) {
      body.delete("picture");
      body.set("builtin", "1");
    }
    await busy(part("go"), "Sending the picture …", async () => {
      const job = await send(form.action, body);
      location.assign(job.url);
    }).catch((error) => refuse(error.message));
  });

  describe();
}

// busy says what a button does until it is done.
async function busy(button, text, work) {
  const before = button.textContent;
  button.disabled = true;
  button.textContent = text;
  try {
    await work();
  } finally {
    button.disabled = false;
    button.textContent = before;
  }
}

// drop takes files that are dropped anywhere on the page: a picture let go beside the area would replace the page.
function drop(area, take) {
  let inside = 0;
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (!holdsFiles(event)) return;
    inside++;
    area.classList.add("over");
  });
  addEventListener("dragleave", (event) => {
    if (!holdsFiles(event)) return;
    if (--inside === 0) area.classList.remove("over");
  });
  addEventListener("dragover", (event) => {
    if (holdsFiles(event)) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    inside = 0;
    area.classList.remove("over");
    if (!event.dataTransfer.files.length) return;
    take(event.dataTransfer.files);
  });
}
