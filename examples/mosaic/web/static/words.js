// Numbers and sums as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (n) => whole.format(n ?? 0);

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

// rate writes messages a second.
export const rate = (n) => (n >= 10 ? whole : one).format(n ?? 0);

export const megapixels = (n) => `${one.format(n / 1e6)} megapixels`;

// seconds writes a duration.
export function seconds(s) {
  if (s < 1) return "less than a second";
  if (s < 9.95) return one.format(s) === "1" ? "1 second" : `${one.format(s)} seconds`;
  const all = Math.round(s);
  if (all < 90) return plural(all, "second");
  return `${plural(Math.floor(all / 60), "minute")} ${plural(all % 60, "second")}`;
}
