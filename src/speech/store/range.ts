import type { ByteRange } from './audio-store.ts';

const ONE_RANGE = /^(?<first>\d*)-(?<last>\d*)$/;

/** Reads a `Range` header (RFC 9110, 14). Several ranges, another unit and an invalid header mean the whole object. */
export function parseRange(header: string | undefined, size: number): ByteRange | 'whole' | 'unsatisfiable' {
  const [, set = ''] = /^bytes=(.*)$/i.exec(header ?? '') ?? [];
  const ranges = set
    .split(',')
    .map((range) => range.trim())
    .filter(Boolean);
  const { first, last } = (ranges.length === 1 && ONE_RANGE.exec(ranges[0] as string)?.groups) || {};
  if (first) {
    const start = Number(first);
    if (last && Number(last) < start) return 'whole';
    if (start >= size) return 'unsatisfiable';
    return { start, end: last ? Math.min(Number(last), size - 1) : size - 1 };
  }
  if (!last) return 'whole';
  const length = Number(last);
  if (length === 0) return 'unsatisfiable';
  return size === 0 ? 'whole' : { start: Math.max(0, size - length), end: size - 1 };
}
