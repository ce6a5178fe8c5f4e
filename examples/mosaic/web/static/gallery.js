// Shows finished mosaics small, put together from the squares of a level of the zoom.

const wide = 400; // pixels that are enough

export function startGallery(prints) {
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      thumbnail(target.dataset.thumbnail).then((canvas) => target.querySelector("img").replaceWith(canvas), () => {}); // the original stays
    }
  });
  for (const print of prints) seen.observe(print);
}

async function thumbnail(base) {
  const response = await fetch(`${base}/zoom`);
  if (!response.ok) throw new Error(String(response.status));
  const { tile, levels } = await response.json();
  const number = Math.max(0, levels.findLastIndex((l) => l.width >= wide));
  const level = levels[number];
  const canvas = document.createElement("canvas");
  canvas.width = level.width;
  canvas.height = level.height;
  canvas.setAttribute("aria-hidden", "true"); // the link beside it says what it is
  const paper = canvas.getContext("2d");
  const squares = [];
  for (let y = 0; y * tile < level.height; y++) {
    for (let x = 0; x * tile < level.width; x++) {
      const image = new Image();
      image.src = `${base}/zoom/${number}/${x}/${y}`;
      squares.push(image.decode().then(() => paper.drawImage(image, x * tile, y * tile)));
    }
  }
  await Promise.all(squares);
  return canvas;
}
