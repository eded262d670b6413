import type { Line } from './comparison.ts';

const LABEL_WIDTH = 190;
const BAR_WIDTH = 230;
const VALUE_WIDTH = 110;
const PANEL_WIDTH = BAR_WIDTH + VALUE_WIDTH;
const WIDTH = LABEL_WIDTH + 2 * PANEL_WIDTH + 10;
const ROW_HEIGHT = 24;
const BAR_HEIGHT = 14;
const HEADING_HEIGHT = 52;

const OWN = '#1f6feb';
const OTHER = '#9aa4b0';
const DATABASE = '#b9d3fb';

/** Ceiling and floor, beside which the others would be too short to see. */
const LEFT_OUT: ReadonlySet<string> = new Set(['bare', 'prebuilt']);

/**
 * Two groups of bars, audio and challenges, each with requests a second (the thin line goes from the slowest round to
 * the fastest) and CPU a request (PostgreSQL's in light). A group has scales of its own.
 */
export function plot(all: readonly Line[]): string {
  const lines = all.filter(({ name }) => !LEFT_OUT.has(name));
  const groups: [string, Line[]][] = [
    ['24 KB of audio', lines.filter(({ isChallenge }) => !isChallenge)],
    ['402 with a challenge', lines.filter(({ isChallenge }) => isChallenge)],
  ];
  let y = 0;
  const parts = groups.flatMap(([title, members]) => {
    const part = group(title, members, y);
    y += HEADING_HEIGHT + members.length * ROW_HEIGHT + 12;
    return part;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" font-family="sans-serif" font-size="12" role="img">`,
    '<title>Requests a second and CPU a request, beside other gateways</title>',
    `<rect width="${WIDTH}" height="${y}" fill="#fff"/>`,
    ...parts,
    '</svg>\n',
  ].join('\n');
}

function group(title: string, lines: readonly Line[], top: number): string[] {
  const right = LABEL_WIDTH + PANEL_WIDTH;
  const perPixel = {
    rate: Math.max(...lines.map(({ requestsPerSecond }) => requestsPerSecond.max)) / BAR_WIDTH,
    cpu: Math.max(...lines.map(({ cpuMs, postgresCpuMs }) => cpuMs.median + postgresCpuMs.median)) / BAR_WIDTH,
  };
  return [
    text(10, top + 22, title, 'font-weight="bold"'),
    text(LABEL_WIDTH, top + 42, 'requests a second', 'fill="#555"'),
    text(right, top + 42, 'CPU ms a request', 'fill="#555"'),
    ...lines.flatMap((line, index) => {
      const y = top + HEADING_HEIGHT + index * ROW_HEIGHT;
      const colour = line.isOwn ? OWN : OTHER;
      const { median, min, max } = line.requestsPerSecond;
      const [cpu, database] = [line.cpuMs.median / perPixel.cpu, line.postgresCpuMs.median / perPixel.cpu];
      const middle = y + BAR_HEIGHT / 2;
      const toRate = (value: number) => (LABEL_WIDTH + value / perPixel.rate).toFixed(1);
      return [
        text(10, y + 11, line.label, line.isOwn ? 'font-weight="bold"' : ''),
        bar(LABEL_WIDTH, y, median / perPixel.rate, colour),
        `<path d="M${toRate(min)} ${middle}H${toRate(max)}" stroke="#333"/>`,
        text(LABEL_WIDTH + max / perPixel.rate + 6, y + 11, Math.round(median).toLocaleString('en-US')),
        bar(right, y, cpu, colour),
        ...(line.isOwn ? [bar(right + cpu, y, database, DATABASE)] : []),
        text(right + cpu + database + 6, y + 11, cpuText(line)),
      ];
    }),
  ];
}

const cpuText = ({ isOwn, cpuMs, postgresCpuMs }: Line): string =>
  isOwn && postgresCpuMs.median > 0
    ? `${cpuMs.median.toFixed(2)} + ${postgresCpuMs.median.toFixed(2)}`
    : cpuMs.median.toFixed(2);

const bar = (x: number, y: number, width: number, colour: string): string =>
  `<rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${BAR_HEIGHT}" fill="${colour}"/>`;

const text = (x: number, y: number, content: string, attributes = ''): string =>
  `<text x="${x.toFixed(1)}" y="${y}" ${attributes}>${content.replaceAll('&', '&amp;').replaceAll('<', '&lt;')}</text>`;
