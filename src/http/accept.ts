interface MediaRange {
  /** In lower case. */
  readonly type: string;
  /** From 0 to 1. */
  readonly quality: number;
}

/**
 * True when an Accept header names HTML, and prefers it to JSON by quality values (RFC 9110, 12.5.1); of equal ones,
 * when it does not name JSON before, as browsers don't (R15).
 */
export function prefersHtml(accept = ''): boolean {
  const ranges = accept.split(',').map(readRange);
  const html = ranges.findIndex(({ type }) => type === 'text/html');
  const json = ranges.findIndex(({ type }) => type === 'application/json');
  const htmlQuality = ranges[html]?.quality ?? 0;
  if (htmlQuality === 0) return false;
  const jsonQuality = qualityOfJson(ranges);
  return htmlQuality > jsonQuality || (htmlQuality === jsonQuality && (json < 0 || html < json));
}

function readRange(range: string): MediaRange {
  const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
  const given = parameters.map((parameter) => /^q\s*=\s*([01](?:\.\d*)?)$/.exec(parameter)?.[1]).find(Boolean);
  return { type, quality: Math.min(Number(given ?? 1), 1) };
}

/** What the most specific range that covers JSON says. */
function qualityOfJson(ranges: readonly MediaRange[]): number {
  const covering = ['application/json', 'application/*', '*/*'].map((name) => ranges.find(({ type }) => type === name));
  return covering.find((range) => range !== undefined)?.quality ?? 0;
}
