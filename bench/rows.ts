import type { Plan } from './load/requests.ts';
import type { TargetName } from './targets/start.ts';
import { TEXT } from './world.ts';

/** A line of the table: a kind of work at a target. */
export interface Row {
  readonly name: string;
  readonly label: string;
  readonly target: TargetName;
  /** Of the target. */
  readonly processes: number;
  /** `challenge` answers 402; `paid` pays for such a challenge of the same target; the others are answered with audio. */
  readonly work: 'challenge' | 'paid' | 'open' | 'account' | 'prepaid';
  readonly path: string;
  readonly body: string;
  /** Of its request. @param upstream origin of the speech server */
  readonly headers?: (upstream: string) => Readonly<Record<string, string>>;
  /** What is asked of it beside other rows of the same run. */
  readonly asked?: readonly Asked[];
}

export interface Asked {
  readonly against: string;
  /** At least so many times its requests a second. */
  readonly rate: number;
  /** At most so many times its CPU a request. */
  readonly cpu: number;
}

const OPENAI_PATH = '/v1/audio/speech';
const openAi = JSON.stringify({ model: 'tts-1', voice: 'alloy', input: TEXT, response_format: 'mp3' });
const order = JSON.stringify({ text: TEXT });
const peerSale = { path: '/tts', body: order };
const sale = { path: '/x402/tts', body: order, target: 'ours' } as const;

const ROWS: readonly Omit<Row, 'processes'>[] = [
  { name: 'bare', label: 'bare Fastify + undici proxy', target: 'bare', work: 'open', path: OPENAI_PATH, body: openAi },
  {
    name: 'portkey',
    ...{ label: 'Portkey 1.15.2', target: 'portkey', work: 'open', path: OPENAI_PATH, body: openAi },
    headers: (upstream) => ({
      authorization: 'Bearer benchmark',
      'x-portkey-provider': 'openai',
      'x-portkey-custom-host': `${upstream}/v1`,
    }),
  },
  {
    name: 'card',
    ...{ label: 'card', target: 'ours', work: 'account', path: '/tts', body: order },
    asked: [{ against: 'portkey', rate: 2, cpu: 0.35 }],
  },
  { name: 'prepaid', label: 'prepaid', work: 'prepaid', ...sale, asked: [{ against: 'portkey', rate: 2, cpu: 0.4 }] },
  { name: 'hono-paid', label: '@x402/hono, paid', target: 'hono', work: 'paid', ...peerSale },
  { name: 'express-paid', label: '@x402/express, paid', target: 'express', work: 'paid', ...peerSale },
  {
    ...{ name: 'direct', label: 'direct', work: 'paid', ...sale },
    asked: [
      { against: 'hono-paid', rate: 3, cpu: 0.3 },
      { against: 'express-paid', rate: 3, cpu: 0.3 },
    ],
  },
  { name: 'prebuilt', label: 'prebuilt 402 from memory', work: 'challenge', ...sale, target: 'prebuilt' },
  { name: 'hono-challenge', label: '@x402/hono, challenge', target: 'hono', work: 'challenge', ...peerSale },
  { name: 'express-challenge', label: '@x402/express, challenge', target: 'express', work: 'challenge', ...peerSale },
  {
    ...{ name: 'challenge', label: 'challenge', work: 'challenge', ...sale },
    asked: [{ against: 'hono-challenge', rate: 2.5, cpu: 0.4 }],
  },
];

/** What the added latency is added to. */
export const UPSTREAM: Row = {
  ...{ name: 'upstream', label: 'the upstream itself', target: 'upstream', processes: 1, work: 'open' },
  ...{ path: OPENAI_PATH, body: openAi },
};

/**
 * The rows of these names and those that they are held against; all of them without names. The gateway's rows come once
 * for each number of processes.
 */
export function selectRows(names: readonly string[], processes: readonly number[]): readonly Row[] {
  const wanted = new Set(names.length > 0 ? names : ROWS.map(({ name }) => name));
  for (const { name, asked = [] } of ROWS) {
    if (wanted.has(name)) for (const { against } of asked) wanted.add(against);
  }
  return ROWS.filter(({ name }) => wanted.has(name)).flatMap((row) => {
    if (row.target !== 'ours') return [{ ...row, processes: 1 }];
    return processes.map((count) => ({
      ...{ ...row, processes: count },
      ...(count > 1 && { name: `${row.name}-${count}`, label: `${row.label}, ${count} processes` }),
    }));
  });
}

export const rowNames: readonly string[] = ROWS.map(({ name }) => name);

/** The request of a row, without the payment of a challenge. @param upstream origin of the speech server */
export const planOf = ({ work, path, body, headers }: Row, upstream: string): Plan => ({
  ...{ path, body, headers: headers?.(upstream) ?? {} },
  payment: { by: work === 'account' || work === 'prepaid' ? work : 'nothing' },
});
