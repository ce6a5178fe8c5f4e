// Speaks to people who do not see the page. What is said in haste is dropped, except for the last.

const region = document.getElementById("say");
const pause = 1500; // milliseconds between two announcements
let next = "";
let timer = 0;

export function say(text) {
  next = text;
  if (timer) return;
  speak();
  timer = setTimeout(function again() {
    timer = next ? setTimeout(again, pause) : 0;
    speak();
  }, pause);
}

function speak() {
  if (next && region) region.textContent = next;
  next = "";
}
