// Numbers as people read them. Everything returns text; null and undefined become a dash.

const NONE = "–";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

// Three significant digits, without an exponent.
function short(value) {
  if (value >= 100) return whole.format(value);
  return value.toFixed(value >= 10 ? 1 : 2);
}

export function count(value) {
  return missing(value) ? NONE : whole.format(value);
}

export function bytes(value) {
  if (missing(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(scaled) : short(scaled)} ${units[unit]}`;
}

export function micros(value) {
  if (missing(value)) return NONE;
  if (value >= 1e6) return `${short(value / 1e6)} s`;
  if (value >= 1e3) return `${short(value / 1e3)} ms`;
  return `${short(value)} µs`;
}

// A round number of an axis: no digits beyond those that it has.
export function tick(value) {
  const units = [["s", 1e6], ["ms", 1e3], ["µs", 1]];
  const [name, size] = units.find((unit) => value >= unit[1]) ?? units[2];
  return value === 0 ? "0" : `${Number((value / size).toPrecision(6))} ${name}`;
}

export function seconds(value) {
  if (missing(value)) return NONE;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  const hours = Math.floor(value / 3600);
  return `${whole.format(hours)} h ${Math.floor((value % 3600) / 60)} min`;
}

export function rate(value) {
  return missing(value) ? NONE : short(value);
}

// Tensor statistics: four significant digits; zero and integers stay short.
export function real(value) {
  if (missing(value)) return NONE;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? value.toPrecision(4) : value.toExponential(2);
}

export function plural(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function percent(part, whole_) {
  return whole_ > 0 ? Math.max(0, Math.min(100, (100 * part) / whole_)) : 0;
}

// The smallest of 1, 2, 5 times a power of ten that is at least this.
export function niceCeiling(value, factors = [1, 2, 5, 10]) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return factors.map((factor) => factor * power).find((nice) => nice >= value * 0.999999);
}

// The value below which this share of the values lies; null without any.
export function quantile(values, share) {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
