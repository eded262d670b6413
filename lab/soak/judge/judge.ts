import { setTimeout as sleep } from 'node:timers/promises';
import { speechgate } from '../../../test/support/speechgate.ts';
import type { Service } from '../world/world.ts';
import { type Death, Desk } from './desk.ts';
import { countEnds, countSpared, differing, type Money, type Spared, sumMoney } from './money.ts';
import { OPEN_RULES } from './open-things.ts';
import { PAYMENT_RULES } from './payments.ts';
import { PURCHASE_RULES } from './purchases.ts';
import type { Kind, Rule } from './rule.ts';
import { matchCharges, SPEECH_RULES } from './speech.ts';
import { OTHER_RULES } from './stores.ts';

const LOOK_EVERY_MS = 1_000;
/** Longer than the longest lease, authorization with its blocks, or check of a purchase. */
const HEAL_MS = 300_000;
/** The service may still correct these. A credit without payment is final. */
const HEALING = PURCHASE_RULES.filter(({ kind }) => kind !== 'served, not paid');

export interface Named {
  readonly caller: string;
  readonly number: number;
  readonly flow: string;
  readonly ended: string;
  /** Milliseconds since the start of the run. */
  readonly begun_at: number;
  readonly ended_at: number;
  readonly keys: Readonly<Record<string, unknown>>;
}

export interface Contradiction {
  readonly kind: Kind;
  readonly words: string;
  readonly detail: string | null;
  readonly operation: Named | undefined;
}

export interface Verdict {
  readonly contradictions: readonly Contradiction[];
  readonly money: readonly Money[];
  readonly ends: readonly { readonly flow: string; readonly ended: string; readonly count: bigint }[];
  readonly spared: Spared;
}

/**
 * Waits until nothing is open, then compares the callers' records with the books, chain, processor and audio store, to
 * the micro-USD. Also runs the service's own audit. Faults and callers must have ended.
 * @param told path of the callers' records
 */
export async function judge(
  world: Service,
  told: string,
  deaths: readonly Death[],
  progress: (words: string) => void,
): Promise<Verdict> {
  const desk = await Desk.open(world.databaseUrl);
  try {
    await desk.layTold(told);
    await heal(world, desk, progress);
    progress('comparing');
    await Promise.all([desk.layChain(world), desk.layAudio(world)]);
    await desk.layDeaths(deaths);
    await matchCharges(desk);
    const contradictions: Contradiction[] = [];
    for (const rule of [...SPEECH_RULES, ...PAYMENT_RULES, ...PURCHASE_RULES, ...OTHER_RULES, ...OPEN_RULES]) {
      contradictions.push(...(await broken(desk, rule)));
    }
    const money = await sumMoney(desk);
    for (const { flow } of differing(money)) {
      contradictions.push({ kind: 'other', words: `the sums of ${flow} differ`, detail: null, operation: undefined });
    }
    const [ends, spared] = [await countEnds(desk), await countSpared(desk)];
    progress('auditing');
    const audit = await speechgate(world.env, 'audit', '--external');
    const lines = audit.output.split('\n').filter((line) => /^(BROKEN|\s+NOT CHECKED)/.test(line));
    if (audit.code !== 0) {
      const detail = lines.join('; ') || audit.output.slice(-2_000);
      contradictions.push({ kind: 'other', words: 'the audit finds fault', detail, operation: undefined });
    }
    return { contradictions, money, ends, spared };
  } finally {
    await desk.close();
  }
}

/** Waits until nothing is open and purchases match the processor, or until the timeout. */
async function heal(world: Service, desk: Desk, progress: (words: string) => void): Promise<void> {
  for (const giveUpAt = performance.now() + HEAL_MS; ; await sleep(LOOK_EVERY_MS)) {
    const open = await countBroken(desk, OPEN_RULES);
    progress(`${open} open`);
    if (open === 0) {
      await desk.laySessions(world);
      const unlike = await countBroken(desk, HEALING);
      if (unlike === 0) return;
      progress(`${unlike} purchases unlike the processor`);
    }
    if (performance.now() > giveUpAt) break;
  }
  await desk.laySessions(world);
}

async function countBroken(desk: Desk, rules: readonly Rule[]): Promise<number> {
  let count = 0;
  for (const { sql } of rules) {
    const [row] = await desk.query<{ count: bigint }>(`select count(*) as count from (${sql}) broken`);
    count += Number(row?.count ?? 0);
  }
  return count;
}

async function broken(desk: Desk, { kind, words, sql }: Rule): Promise<Contradiction[]> {
  const rows = await desk.query<{ detail: string | null } & { [Key in keyof Named]: Named[Key] | null }>(`
    select detail, caller, number, flow, ended, begun_at, ended_at, keys
    from (${sql}) broken left join told on told.id = broken.told`);
  return rows.map(({ detail, ...operation }) => ({
    ...{ kind, words, detail },
    operation: operation.caller === null ? undefined : (operation as Named),
  }));
}
