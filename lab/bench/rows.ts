import type { Plan } from './load/requests.ts';
import type { TargetName } from './targets/start.ts';
import { TEXT } from './world.ts';

/** A row of the table: one kind of work at one target. */
export interface Row {
  readonly name: string;
  readonly label: string;
  readonly target: TargetName;
  readonly processes: number;
  /** `challenge` returns 402. `paid` pays a challenge of the same target. The others return audio. */
  readonly work: 'challenge' | 'paid' | 'open' | 'account' | 'prepaid';
  readonly path: string;
  readonly body: string;
  /** Headers of the request. @param upstream origin of the speech server */
  readonly headers?: (upstream: string) => Readonly<Record<string, string>>;
  /** Target values, relative to other rows of the same run. */
  readonly asked?: readonly Asked[];
}

export interface Asked {
  readonly against: string;
  readonly rate: number;
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
  { name: 'floor-card', label: 'floor, card', target: 'floor', work: 'account', path: '/tts', body: order },
  {
    name: 'card',
    ...{ label: 'card', target: 'ours', work: 'account', path: '/tts', body: order },
    asked: [{ against: 'portkey', rate: 2.2, cpu: 0.38 }],
  },
  { name: 'floor-prepaid', label: 'floor, prepaid', work: 'prepaid', ...sale, target: 'floor' },
  { name: 'prepaid', label: 'prepaid', work: 'prepaid', ...sale, asked: [{ against: 'portkey', rate: 1.8, cpu: 0.5 }] },
  { name: 'hono-paid', label: '@x402/hono, paid', target: 'hono', work: 'paid', ...peerSale },
  { name: 'express-paid', label: '@x402/express, paid', target: 'express', work: 'paid', ...peerSale },
  { name: 'floor-direct', label: 'floor, direct', work: 'paid', ...sale, target: 'floor' },
  {
    ...{ name: 'direct', label: 'direct', work: 'paid', ...sale },
    asked: [{ against: 'hono-paid', rate: 1, cpu: 0.85 }],
  },
  { name: 'prebuilt', label: 'prebuilt 402 from memory', work: 'challenge', ...sale, target: 'prebuilt' },
  { name: 'hono-challenge', label: '@x402/hono, challenge', target: 'hono', work: 'challenge', ...peerSale },
  { name: 'express-challenge', label: '@x402/express, challenge', target: 'express', work: 'challenge', ...peerSale },
  {
    ...{ name: 'challenge', label: 'challenge', work: 'challenge', ...sale },
    asked: [{ against: 'hono-challenge', rate: 2.2, cpu: 0.5 }],
  },
];

/** The baseline of the added latency. */
export const UPSTREAM: Row = {
  ...{ name: 'upstream', label: 'the upstream itself', target: 'upstream', processes: 1, work: 'open' },
  ...{ path: OPENAI_PATH, body: openAi },
};

/**
 * Selects rows by name, and the rows that they are compared with. Without names it selects all.
 * The gateway's rows repeat for each number of processes.
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

/** The request of a row, without a payment for a challenge. @param upstream origin of the speech server */
export const planOf = ({ work, path, body, headers }: Row, upstream: string): Plan => ({
  ...{ path, body, headers: headers?.(upstream) ?? {} },
  payment: { by: work === 'account' || work === 'prepaid' ? work : 'nothing' },
});
