import type { Cells } from '../figures.ts';
import { namedRows, type Row } from './rows.ts';
import { setUp } from './setup.ts';
import { type Spread, spread, wholeSpread } from './statistics.ts';
import type { Tuning } from './targets.ts';
import { measureThroughput, type Pace, prepareRows, type Round, type WarmUp } from './throughput.ts';

export interface DutyPace extends Pace {
  readonly warmUp: WarmUp;
}

/** From which step on the gateway's own server serves the request. */
export const CONTRACT = 'contract: body, validators, serializers, errors, connections, graceful stop';
export const ORDER = 'catalog, order and price';
export const PAYMENT_HEADER = 'payment header: schema, offer, own signature check';
export const LEDGER = 'ledger or payment states, rate window, unpaid work, lease, receipt';
export const AUDIO = 'upstream: audio check, deadline, failover, bounded memory';
const REST = 'pipeline: permits, pauses, look-up, refusals, outcome of the payment, callers who disconnect';

const EDGE = ['trace id', 'security and CORS headers', 'metrics', 'log line', 'limit by address'] as const;

/**
 * What a request costs beyond its floor, in the order in which `servers/duties.ts` adds it: each step has all steps
 * before it. After the last one comes the gateway itself, which adds the pipeline (`speak`) and its operation.
 */
export const DUTIES = {
  card: ['floor', ...EDGE, CONTRACT, ORDER, LEDGER, AUDIO],
  prepaid: ['floor', ...EDGE, CONTRACT, ORDER, LEDGER, AUDIO],
  direct: ['floor', ...EDGE, CONTRACT, ORDER, PAYMENT_HEADER, LEDGER, AUDIO],
} as const;

export type DutyFlow = keyof typeof DUTIES;
export type Duty = (typeof DUTIES)[DutyFlow][number];

/**
 * Adds one duty after the other to each flow's floor, until it is the gateway. All steps run in alternating rounds.
 * Shows the CPU time of a floor, and what each duty adds to it: the differences to the step before in each round.
 */
export async function measureDuties(tuning: Tuning, { warmUp, ...pace }: DutyPace): Promise<Cells> {
  const flows = Object.keys(DUTIES) as DutyFlow[];
  const columns: Map<string, string>[] = [];
  for (const row of namedRows(...flows)) {
    const flow = row.name as DutyFlow;
    const steps = DUTIES[flow].map((duty, step): Row => {
      const name = `duty-${flow}-${step}` as const;
      return { ...row, name, label: `${flow}: ${duty}`, target: name };
    });
    const all = [...steps, row];
    const setup = await setUp(all, tuning);
    try {
      const rounds = await measureThroughput(setup, await prepareRows(setup, all, warmUp), pace);
      const of = all.map(({ name }) => rounds.get(name) as readonly Round[]);
      const cells = of.map((own, step): [string, string] => [
        DUTIES[flow][step] ?? REST,
        microseconds(own.map(({ cpuMs }, round) => cpuMs - (of[step - 1]?.[round]?.cpuMs ?? 0))),
      ]);
      const whole = of.at(-1) as readonly Round[];
      const [total, postgres] = [whole.map(({ cpuMs }) => cpuMs), whole.map(({ postgresCpuMs }) => postgresCpuMs)];
      columns.push(new Map([...cells, ['all', microseconds(total)], ['PostgreSQL', microseconds(postgres)]]));
    } finally {
      await setup.close();
    }
  }
  const lines = [...DUTIES.direct, REST, 'all', 'PostgreSQL'].map((duty) => [
    duty,
    ...columns.map((column) => column.get(duty) ?? ''),
  ]);
  return [['duty', ...flows], ...lines];
}

function microseconds(ms: readonly number[]): string {
  const { median, min, max }: Spread = spread(ms);
  return wholeSpread({ median: median * 1000, min: min * 1000, max: max * 1000 });
}
