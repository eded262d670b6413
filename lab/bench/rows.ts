import type { Plan } from './load/requests.ts';
import { TEXT } from './world.ts';

export type TargetName =
  | 'upstream'
  | 'bare'
  | 'portkey'
  | 'hono'
  | 'express'
  | 'prebuilt'
  | 'floor'
  | 'ours'
  | DutyName;
/** The gateway with the duties of a flow up to this step. */
export type DutyName = `duty-${string}-${number}`;

/** A row of the table: one kind of work at one target. */
export interface Row {
  readonly name: string;
  readonly label: string;
  readonly target: TargetName;
  /** `challenge` returns 402. `paid` pays a challenge of the same target. The others return audio. */
  readonly work: 'challenge' | 'paid' | 'open' | 'account' | 'prepaid';
  readonly path: string;
  readonly body: string;
  /** Headers of the request. @param upstream origin of the speech server */
  readonly headers?: (upstream: string) => Readonly<Record<string, string>>;
  /** Target values, relative to another row of the same run. */
  readonly asked?: { readonly against: string; readonly rate: number; readonly cpu: number };
}

const body = JSON.stringify({ text: TEXT });
const speech = {
  work: 'open',
  path: '/v1/audio/speech',
  body: JSON.stringify({ model: 'tts-1', voice: 'alloy', input: TEXT, response_format: 'mp3' }),
} as const;
const card = { work: 'account', path: '/tts', body } as const;
const prepaid = { work: 'prepaid', path: '/x402/tts', body } as const;
const paid = { work: 'paid', path: '/x402/tts', body } as const;
const challenge = { work: 'challenge', path: '/x402/tts', body } as const;
const path = '/tts';

const portkeyHeaders = (upstream: string) => ({
  authorization: 'Bearer benchmark',
  'x-portkey-provider': 'openai',
  'x-portkey-custom-host': `${upstream}/v1`,
});

function row(name: string, target: TargetName, work: Omit<Row, 'name' | 'target' | 'label'>, label = name): Row {
  return { ...work, name, target, label };
}

const ROWS: readonly Row[] = [
  row('bare', 'bare', speech, 'bare Fastify + undici proxy'),
  row('portkey', 'portkey', { ...speech, headers: portkeyHeaders }, 'Portkey 1.15.2'),
  row('floor-card', 'floor', card, 'floor, card'),
  row('card', 'ours', { ...card, asked: { against: 'portkey', rate: 2.2, cpu: 0.38 } }),
  row('floor-prepaid', 'floor', prepaid, 'floor, prepaid'),
  row('prepaid', 'ours', { ...prepaid, asked: { against: 'portkey', rate: 1.8, cpu: 0.5 } }),
  row('hono-paid', 'hono', { ...paid, path }, '@x402/hono, paid'),
  row('express-paid', 'express', { ...paid, path }, '@x402/express, paid'),
  row('floor-direct', 'floor', paid, 'floor, direct'),
  row('direct', 'ours', { ...paid, asked: { against: 'hono-paid', rate: 1, cpu: 0.85 } }),
  row('prebuilt', 'prebuilt', challenge, 'prebuilt 402 from memory'),
  row('hono-challenge', 'hono', { ...challenge, path }, '@x402/hono, challenge'),
  row('express-challenge', 'express', { ...challenge, path }, '@x402/express, challenge'),
  row('challenge', 'ours', { ...challenge, asked: { against: 'hono-challenge', rate: 2.2, cpu: 0.5 } }),
];

export const rowNames: readonly string[] = ROWS.map(({ name }) => name);

/** The rows with these names, in this order, or the upstream itself. */
export function namedRows(...names: readonly string[]): Row[] {
  const known = [row('upstream', 'upstream', speech, 'the upstream itself'), ...ROWS];
  return names.map((name) => known.find((each) => each.name === name) as Row);
}

/** Selects rows by name, and the rows that they are compared with. Without names it selects all. */
export function selectRows(names: readonly string[]): readonly Row[] {
  const wanted = new Set(names.length > 0 ? names : rowNames);
  for (const { name, asked } of ROWS) if (asked && wanted.has(name)) wanted.add(asked.against);
  return ROWS.filter(({ name }) => wanted.has(name));
}

/** The request of a row, without a payment for a challenge. @param upstream origin of the speech server */
export const planOf = ({ work, path, body, headers }: Row, upstream: string): Plan => ({
  ...{ path, body, headers: headers?.(upstream) ?? {} },
  payment: { by: work === 'account' || work === 'prepaid' ? work : 'nothing' },
});
