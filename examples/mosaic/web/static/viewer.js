// Shows a mosaic on a canvas: it grows on the blurred original, zooms until every tile is a picture, and is compared with the
// original. Positions are pixels of the mosaic; a view is a scale (pixels of the page for one of the mosaic) and the place of
// the mosaic's corner.

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const keep = 400; // squares that stay in memory
const fade = 450; // milliseconds in which a slice appears
const thumb = 22; // width of the thumb of the slider, for the line above it

export class Viewer {
  constructor(view, { onCell, onChange, onPaint }) {
    this.view = view;
    this.canvas = view.querySelector("canvas");
    this.paper = this.canvas.getContext("2d", { alpha: false });
    this.onCell = onCell;
    this.onChange = onChange;
    this.onPaint = onPaint;
    this.size = null; // of the mosaic
    this.slices = new Map(); // by number: image, rows, time at which it came
    this.squares = new Map(); // of the zoom, in the order of their last use
    this.levels = [];
    this.at = { scale: 1, x: 0, y: 0 };
    this.goal = null; // the view that an animation approaches
    this.cell = null; // the cell that is pointed at
    this.keyboard = false; // whether it was chosen with the keyboard
    this.against = 0; // per cent of the width that show the original
    this.frame = 0;
    new ResizeObserver(() => this.resized()).observe(view);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.listen();
  }

  // open gives the sizes. The rest of the mosaic follows with original, slice and zoom.
  open({ mosaicWidth: width, mosaicHeight: height, cols, rows, scale, width: pictureWidth, height: pictureHeight }) {
    if (this.size?.width === width && this.size?.height === height && this.size?.cols === cols) return;
    this.size = { width, height, cols, rows, cell: width / cols, scale, pictureWidth, pictureHeight };
    this.slices.clear();
    this.view.style.aspectRatio = `${width} / ${height}`;
    this.resized();
    this.fit(false);
  }

  original(image) {
    this.sharp = image;
    // The mosaic begins at the corner of the picture and leaves out what is less than a cell at its other edges. What the
    // server sends of a large picture is smaller, by the same share each way.
    const { width, height, scale, pictureWidth, pictureHeight } = this.size;
    const part = (length, all, shown) => Math.min(1, length / scale / all) * shown;
    this.cut = { width: part(width, pictureWidth, image.naturalWidth), height: part(height, pictureHeight, image.naturalHeight) };
    // Browsers differ in filters on a canvas. A picture made small and shown large is blurred in all.
    const small = document.createElement("canvas");
    small.width = 36;
    small.height = Math.max(1, Math.round((36 * image.naturalHeight) / image.naturalWidth));
    const paper = small.getContext("2d");
    paper.imageSmoothingQuality = "high";
    paper.drawImage(image, 0, 0, this.cut.width, this.cut.height, 0, 0, small.width, small.height);
    this.blurred = small;
    this.draw();
  }

  slice(number, image, first, end) {
    this.slices.set(number, { image, first, end, came: performance.now() });
    this.draw();
  }

  // zoom gives the levels, largest first, and where their squares are.
  zoom(square, levels, address) {
    this.square = square;
    this.levels = levels;
    this.address = address;
    this.draw();
  }

  // previews gives a function that returns the photograph of a cell, or null until it is there.
  previews(of) {
    this.preview = of;
  }

  compare(percent) {
    this.against = percent;
    this.draw();
  }

  get room() {
    return { width: this.view.clientWidth, height: this.view.clientHeight };
  }

  get least() {
    const { width, height } = this.room;
    return Math.min(width / this.size.width, height / this.size.height);
  }

  // most shows a cell as large as a stamp on paper.
  get most() {
    return Math.max(2, 220 / this.size.cell, this.least * 2);
  }

  get fits() {
    return this.at.scale <= this.least * 1.001;
  }

  resized() {
    if (!this.size) return;
    const { width, height } = this.room;
    if (!width || !height) return;
    const fitted = this.lastLeast === undefined || this.at.scale <= this.lastLeast * 1.001;
    const dense = Math.min(devicePixelRatio || 1, 3);
    this.canvas.width = Math.round(width * dense);
    this.canvas.height = Math.round(height * dense);
    this.dense = dense;
    this.goal = null;
    this.lastLeast = this.least;
    if (fitted) this.at.scale = this.least;
    this.at = this.held(this.at);
    this.changed();
    this.paint(performance.now());
  }

  // held keeps a view within its limits: no smaller than the whole, and never off the mosaic.
  held({ scale, x, y }) {
    const { width, height } = this.room;
    scale = Math.min(this.most, Math.max(this.least, scale));
    const inside = (place, room, length) => (length <= room ? (room - length) / 2 : Math.min(0, Math.max(room - length, place)));
    return { scale, x: inside(x, width, this.size.width * scale), y: inside(y, height, this.size.height * scale) };
  }

  // go moves to a view, step by step if the user likes movement.
  go(to, smooth = true) {
    to = this.held(to);
    if (smooth && !calm.matches) {
      this.goal = to;
    } else {
      this.goal = null;
      this.at = to;
    }
    this.view.dataset.rests = false; // until it is drawn
    this.changed(to);
    this.draw();
  }

  fit(smooth = true) {
    this.go({ scale: this.least, x: 0, y: 0 }, smooth);
  }

  // zoomBy zooms with the point (x, y) of the page kept in its place; by default the middle, or the chosen cell.
  zoomBy(factor, x, y, smooth = true) {
    if (!this.size) return;
    const from = this.goal ?? this.at;
    const { width, height } = this.room;
    x ??= this.keyboard && this.cell ? from.x + (this.cell.x + 0.5) * this.size.cell * from.scale : width / 2;
    y ??= this.keyboard && this.cell ? from.y + (this.cell.y + 0.5) * this.size.cell * from.scale : height / 2;
    const scale = Math.min(this.most, Math.max(this.least, from.scale * factor));
    const ratio = scale / from.scale;
    this.go({ scale, x: x - (x - from.x) * ratio, y: y - (y - from.y) * ratio }, smooth);
  }

  moveBy(dx, dy) {
    this.go({ ...this.at, x: this.at.x + dx, y: this.at.y + dy }, false);
  }

  // step moves the chosen cell, and the view with it.
  step(dx, dy, one) {
    const { width, height } = this.room;
    const { cols, rows, cell } = this.size;
    const from = this.goal ?? this.at;
    const shown = cell * from.scale;
    const far = one ? 1 : Math.max(1, Math.round(Math.min(width, height) / 8 / shown));
    const middle = { x: Math.floor((width / 2 - from.x) / shown), y: Math.floor((height / 2 - from.y) / shown) };
    const now = this.keyboard && this.cell ? this.cell : middle;
    const next = { x: Math.min(cols - 1, Math.max(0, now.x + dx * far)), y: Math.min(rows - 1, Math.max(0, now.y + dy * far)) };
    this.keyboard = true;
    this.go({ scale: from.scale, x: width / 2 - (next.x + 0.5) * shown, y: height / 2 - (next.y + 0.5) * shown });
    this.point(next);
  }

  // point chooses a cell, or none.
  point(cell) {
    if (cell?.x === this.cell?.x && cell?.y === this.cell?.y) return;
    this.cell = cell;
    this.onCell(cell, this.keyboard);
    this.draw();
  }

  // cellAt returns the cell under a point of the view.
  cellAt(x, y) {
    if (!this.size) return null;
    const cx = Math.floor((x - this.at.x) / this.at.scale / this.size.cell);
    const cy = Math.floor((y - this.at.y) / this.at.scale / this.size.cell);
    return cx >= 0 && cy >= 0 && cx < this.size.cols && cy < this.size.rows ? { x: cx, y: cy } : null;
  }

  // boxOf returns where a cell is in the view.
  boxOf({ x, y }) {
    const side = this.size.cell * this.at.scale;
    return { x: this.at.x + x * side, y: this.at.y + y * side, side };
  }

  changed(to = this.at) {
    const fits = to.scale <= this.least * 1.001;
    this.view.dataset.scale = to.scale.toFixed(4);
    this.view.dataset.x = to.x.toFixed(1);
    this.view.dataset.y = to.y.toFixed(1);
    // At rest a finger scrolls the page. Once zoomed, it moves the picture.
    this.canvas.style.touchAction = fits ? "pan-y" : "none";
    this.onChange({ scale: to.scale, fits, most: to.scale >= this.most * 0.999 });
  }

  draw() {
    this.frame ||= requestAnimationFrame((now) => {
      this.frame = 0;
      this.paint(now);
    });
  }

  paint(now) {
    if (!this.size || !this.canvas.width) return;
    if (this.goal) this.approach();
    const p = this.paper;
    const { width, height } = this.room;
    p.setTransform(this.dense, 0, 0, this.dense, 0, 0);
    p.fillStyle = getComputedStyle(this.view).backgroundColor;
    p.fillRect(0, 0, width, height);
    p.imageSmoothingEnabled = true;
    p.imageSmoothingQuality = "high";
    const whole = { x: this.at.x, y: this.at.y, width: this.size.width * this.at.scale, height: this.size.height * this.at.scale };
    if (this.blurred) p.drawImage(this.blurred, whole.x, whole.y, whole.width, whole.height);
    const fading = this.paintSlices(now);
    if (this.levels.length) this.paintSquares();
    if (this.preview) this.paintPreviews();
    if (this.cell) this.outline();
    if (this.against > 0 && this.sharp) this.paintOriginal(whole, width, height);
    this.onPaint();
    this.view.dataset.rests = !fading && !this.goal;
    if (fading || this.goal) this.draw();
  }

  approach() {
    const { at, goal } = this;
    const step = (a, b) => a + (b - a) * 0.24;
    // The place follows from the scale, or a point under the pointer would swim.
    const scale = step(at.scale, goal.scale);
    const done = Math.abs(goal.scale / at.scale - 1) < 0.003 && Math.hypot(goal.x - at.x, goal.y - at.y) < 0.6;
    if (done) {
      this.at = goal;
      this.goal = null;
      return;
    }
    const part = goal.scale === at.scale ? 0.24 : (scale - at.scale) / (goal.scale - at.scale);
    this.at = { scale, x: at.x + (goal.x - at.x) * part, y: at.y + (goal.y - at.y) * part };
  }

  // paintSlices draws whole pixels, so that no line is seen between two slices.
  paintSlices(now) {
    const p = this.paper;
    const side = this.size.cell * this.at.scale;
    const edge = (v) => Math.round(v * this.dense) / this.dense;
    const [left, right] = [edge(this.at.x), edge(this.at.x + this.size.width * this.at.scale)];
    let fading = false;
    for (const s of this.slices.values()) {
      const age = calm.matches ? 1 : Math.min(1, (now - s.came) / fade);
      fading ||= age < 1;
      const [top, bottom] = [edge(this.at.y + s.first * side), edge(this.at.y + s.end * side)];
      if (bottom < 0 || top > this.room.height) continue;
      p.globalAlpha = age;
      p.drawImage(s.image, left, top, right - left, bottom - top);
    }
    p.globalAlpha = 1;
    return fading;
  }

  // paintSquares draws the level that has a pixel for each of the screen, over a coarser one while it is fetched.
  paintSquares() {
    const wanted = this.at.scale * this.dense;
    let level = 0;
    while (level + 1 < this.levels.length && this.levels[level + 1].width / this.size.width >= wanted * 0.99) level++;
    let missing = 0;
    for (const l of [this.levels.length - 1, Math.min(level + 2, this.levels.length - 1), level]) missing = this.paintLevel(l, l === level);
    this.view.dataset.missing = missing;
    this.view.dataset.level = level;
  }

  paintLevel(number, fetch) {
    const { width, height } = this.room;
    const level = this.levels[number];
    const side = (this.square * this.size.width * this.at.scale) / level.width; // of a square on the page
    const across = Math.ceil(level.width / this.square);
    const down = Math.ceil(level.height / this.square);
    const first = (place) => Math.max(0, Math.floor(-place / side));
    const end = (place, room, n) => Math.min(n, Math.ceil((room - place) / side));
    const edge = (v) => Math.round(v * this.dense) / this.dense;
    let missing = 0;
    for (let y = first(this.at.y); y < end(this.at.y, height, down); y++) {
      for (let x = first(this.at.x); x < end(this.at.x, width, across); x++) {
        const image = this.squareOf(number, x, y, fetch || number === this.levels.length - 1);
        if (!image) {
          missing++;
          continue;
        }
        const share = side / this.square;
        const [left, top] = [this.at.x + x * side, this.at.y + y * side];
        const [l, t] = [edge(left), edge(top)];
        this.paper.drawImage(image, l, t, edge(left + image.naturalWidth * share) - l, edge(top + image.naturalHeight * share) - t);
      }
    }
    return missing;
  }

  // squareOf returns a square if it is there, and fetches it otherwise.
  squareOf(level, x, y, fetch) {
    const name = `${level}/${x}/${y}`;
    let square = this.squares.get(name);
    if (square) {
      this.squares.delete(name);
      this.squares.set(name, square);
    } else if (fetch) {
      square = newImage(this.address(name), () => this.draw(), () => this.squares.delete(name));
      this.squares.set(name, square);
      if (this.squares.size > keep) this.squares.delete(this.squares.keys().next().value);
    }
    return square?.complete && square.naturalWidth ? square : null;
  }

  // paintPreviews shows photographs where a cell is larger than its tile.
  paintPreviews() {
    const { width, height } = this.room;
    const side = this.size.cell * this.at.scale;
    if (side < 72 || side < this.size.cell * 1.5 || this.goal) return;
    const from = this.cellAt(Math.max(0, this.at.x), Math.max(0, this.at.y)) ?? { x: 0, y: 0 };
    for (let y = from.y; y < this.size.rows && this.at.y + y * side < height; y++) {
      for (let x = from.x; x < this.size.cols && this.at.x + x * side < width; x++) {
        const image = this.preview(x, y);
        if (!image) continue;
        const cut = Math.min(image.naturalWidth, image.naturalHeight);
        const box = this.boxOf({ x, y });
        this.paper.drawImage(image, (image.naturalWidth - cut) / 2, (image.naturalHeight - cut) / 2, cut, cut, box.x, box.y, side, side);
      }
    }
  }

  outline() {
    const p = this.paper;
    const box = this.boxOf(this.cell);
    const side = Math.max(box.side, 10);
    const [x, y] = [box.x + box.side / 2 - side / 2, box.y + box.side / 2 - side / 2];
    for (const [colour, wide] of [["rgb(0 0 0 / 0.75)", 4], ["#fff", 2]]) {
      p.strokeStyle = colour;
      p.lineWidth = wide;
      p.strokeRect(x, y, side, side);
    }
  }

  paintOriginal(whole, width, height) {
    const p = this.paper;
    const line = this.against >= 100 ? width : thumb / 2 + ((width - thumb) * this.against) / 100;
    p.save();
    p.beginPath();
    p.rect(0, 0, line, height);
    p.clip();
    p.drawImage(this.sharp, 0, 0, this.cut.width, this.cut.height, whole.x, whole.y, whole.width, whole.height);
    p.restore();
    if (this.against >= 100) return;
    p.fillStyle = "rgb(0 0 0 / 0.5)";
    p.fillRect(line - 2, 0, 4, height);
    p.fillStyle = "#fff";
    p.fillRect(line - 1, 0, 2, height);
  }

  listen() {
    const { view, canvas } = this;
    const fingers = new Map();
    let travelled = 0;
    const place = (e) => {
      const box = view.getBoundingClientRect();
      return { x: e.clientX - box.left, y: e.clientY - box.top };
    };

    canvas.addEventListener("wheel", (event) => {
      if (!this.size) return;
      // The page scrolls on where there is nothing to zoom.
      if (event.deltaY > 0 && this.fits && !event.ctrlKey) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      const { x, y } = place(event);
      this.zoomBy(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), x, y);
    }, { passive: false });

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      travelled = 0;
      this.keyboard = false;
      view.classList.add("moving");
    });

    canvas.addEventListener("pointermove", (event) => {
      if (!this.size) return;
      const now = place(event);
      const before = fingers.get(event.pointerId);
      if (!before) {
        if (event.pointerType === "mouse") {
          this.keyboard = false;
          this.point(this.cellAt(now.x, now.y));
        }
        return;
      }
      const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      fingers.set(event.pointerId, now);
      travelled += Math.hypot(now.x - before.x, now.y - before.y);
      if (!others.length) {
        this.moveBy(now.x - before.x, now.y - before.y);
        return;
      }
      const other = others[0];
      const apart = (p) => Math.max(1, Math.hypot(p.x - other.x, p.y - other.y));
      const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
      this.moveBy((now.x - before.x) / 2, (now.y - before.y) / 2);
      this.zoomBy(apart(now) / apart(before), middle.x, middle.y, false);
    });

    const up = (event) => {
      if (!fingers.delete(event.pointerId) || fingers.size) return;
      view.classList.remove("moving");
      // A tap points at a cell, as hovering does.
      if (event.type === "pointerup" && travelled < 8 && event.pointerType !== "mouse") {
        const { x, y } = place(event);
        this.point(this.cellAt(x, y));
      }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && !this.keyboard) this.point(null);
    });
    canvas.addEventListener("dblclick", (event) => {
      const { x, y } = place(event);
      this.zoomBy(event.shiftKey ? 1 / 2.5 : 2.5, x, y);
    });

    view.addEventListener("keydown", (event) => {
      if (!this.size || event.ctrlKey || event.metaKey || event.altKey) return;
      const act = {
        "+": () => this.zoomBy(1.6), "=": () => this.zoomBy(1.6),
        "-": () => this.zoomBy(1 / 1.6), "−": () => this.zoomBy(1 / 1.6),
        0: () => this.fit(),
        ArrowLeft: () => this.step(-1, 0, event.shiftKey), ArrowRight: () => this.step(1, 0, event.shiftKey),
        ArrowUp: () => this.step(0, -1, event.shiftKey), ArrowDown: () => this.step(0, 1, event.shiftKey),
        Escape: () => this.point(null),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    view.addEventListener("blur", () => {
      if (this.keyboard) this.point(null);
      this.keyboard = false;
    });
  }
}

// newImage fetches a picture and tells when it is there. One that fails is asked for again, ever later, for some minutes: a
// server that is started again needs a while. Then lost is told.
export function newImage(address, then, lost = () => {}, tries = 20) {
  const image = new Image();
  let wait = 800;
  image.decoding = "async";
  image.addEventListener("load", () => then(image));
  image.addEventListener("error", () => {
    if (--tries <= 0) {
      lost();
      return;
    }
    setTimeout(() => (image.src = `${address}?again=${tries}`), wait);
    wait = Math.min(10_000, wait * 1.3);
  });
  image.src = address;
  return image;
}
