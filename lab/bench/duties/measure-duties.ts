import { type Prepared, prepareRows, type WarmUp } from '../prepare.ts';
import type { Row } from '../rows.ts';
import { type SetupOptions, setUp } from '../setup.ts';
import { type Spread, spread } from '../statistics.ts';
import { measureThroughput, type Pace, type Round } from '../throughput.ts';
import { DUTIES, type DutyFlow, REST } from './duties.ts';

export interface DutyPace {
  readonly warmUp: WarmUp;
  readonly throughput: Pace;
}

export interface DutyLine {
  readonly flow: DutyFlow;
  readonly duty: string;
  /** CPU time of a request with this duty and those before it, in the gateway and in PostgreSQL. */
  readonly cpuMs: Spread;
  readonly postgresCpuMs: Spread;
  /** What the duty adds to the gateway's: of the differences to the step before in each round. */
  readonly addedMs: Spread | undefined;
}

/** Adds one duty after the other to each flow's floor, until it is the gateway. All steps run in alternating rounds. */
export async function measureDuties(
  rows: readonly Row[],
  options: SetupOptions,
  { warmUp, throughput }: DutyPace,
  onProgress: (message: string) => void,
): Promise<DutyLine[]> {
  const lines: DutyLine[] = [];
  for (const row of rows) {
    const flow = row.name as DutyFlow;
    const steps = DUTIES[flow].map((duty, step): Row => {
      const name = `duty-${flow}-${step}` as const;
      return { ...row, name, label: `${flow}: ${duty}`, target: name, asked: [] };
    });
    const all = [...steps, { ...row, asked: [] }];
    const wanted = all.map(({ target, processes }) => ({ name: target, processes }));
    const setup = await setUp(wanted, options, onProgress);
    try {
      const prepared = await prepareRows(setup, all, warmUp, onProgress);
      const of = all.map(({ name }) => prepared.get(name) as Prepared);
      const rounds = await measureThroughput(setup, of, throughput, onProgress);
      const roundsOf = all.map(({ name }) => rounds[name] ?? []);
      lines.push(...all.map((_, step) => lineOf(flow, step, roundsOf)));
    } finally {
      await setup.close();
    }
  }
  return lines;
}

function lineOf(flow: DutyFlow, step: number, rounds: readonly (readonly Round[])[]): DutyLine {
  const own = rounds[step] as readonly Round[];
  const before = rounds[step - 1];
  return {
    flow,
    duty: DUTIES[flow][step] ?? REST,
    cpuMs: spread(own.map(({ cpuMs }) => cpuMs)),
    postgresCpuMs: spread(own.map(({ postgresCpuMs }) => postgresCpuMs)),
    addedMs: before && spread(own.map(({ cpuMs }, round) => cpuMs - (before[round] as Round).cpuMs)),
  };
}
