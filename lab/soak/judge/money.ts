import type { Desk } from './desk.ts';
import { SPEECH } from './speech.ts';

/** Micro-USD of a flow by source. Undefined where a source does not know the flow. */
export interface Money {
  readonly flow: string;
  readonly told: bigint;
  readonly ledger: bigint;
  readonly chain?: bigint;
  readonly processor?: bigint;
}

const CENT = 10_000;

/** For callers without a final response, `told` counts what the books or the chain contain. */
export async function sumMoney(desk: Desk): Promise<Money[]> {
  const [sums] = await desk.query<Record<string, bigint>>(`
    with spent as (
      select flow, sum(told.amount) filter (where charges > 0) as told
      from told join tally on tally.told = told.id group by flow
    ), paid as (
      select flow, sum(told.amount) as told, sum(received.amount) as chain
      from told left join received on received.payer = told.payer and received.nonce = told.nonce
      where flow in ('direct', 'direct, quoted', 'deposit')
        and (ended = 'served' or ended <> 'refused' and received.amount is not null)
      group by flow
    )
    select
      (select sum(told) from spent where flow like 'card%' or flow = 'job') as card_told,
      (select sum(amount) from held where kind = 'charge' and is_charged) as card_ledger,
      (select sum(told) from spent where flow = 'prepaid') as prepaid_told,
      (select sum(amount) from held where kind = 'spend' and is_charged) as prepaid_ledger,
      (select sum(told) from paid where flow <> 'deposit') as direct_told,
      (select sum(amount_micro_usd) from transfer where kind = 'settlement' and state = 'posted') as direct_ledger,
      (select sum(chain) from paid where flow <> 'deposit') as direct_chain,
      (select sum(told) from paid where flow = 'deposit') as deposit_told,
      (select sum(amount_micro_usd) from transfer where kind = 'deposit' and state = 'posted') as deposit_ledger,
      (select sum(chain) from paid where flow = 'deposit') as deposit_chain,
      (select sum(amount) from received) as received,
      (select sum(amount) from told where flow in ('top-up', 'refund', 'dispute') and session_id is not null) as bought_told,
      (select sum(amount_micro_usd) from transfer where kind = 'top_up') as bought_ledger,
      (select sum(cents::bigint * ${CENT}) from session where is_paid) as bought_processor,
      (select sum(clawback.amount_cents::bigint * ${CENT}) from clawback where state = 'taken') as back_ledger,
      (select sum(taken_back_cents::bigint * ${CENT}) from session) as back_processor`);
  const of = (name: string): bigint => BigInt(sums?.[name] ?? 0);
  return [
    { flow: 'card and jobs', told: of('card_told'), ledger: of('card_ledger') },
    { flow: 'prepaid', told: of('prepaid_told'), ledger: of('prepaid_ledger') },
    { flow: 'direct', told: of('direct_told'), ledger: of('direct_ledger'), chain: of('direct_chain') },
    { flow: 'deposits', told: of('deposit_told'), ledger: of('deposit_ledger'), chain: of('deposit_chain') },
    {
      flow: 'all in USDC',
      told: of('direct_told') + of('deposit_told'),
      ledger: of('direct_ledger') + of('deposit_ledger'),
      chain: of('received'),
    },
    { flow: 'purchases', told: of('bought_told'), ledger: of('bought_ledger'), processor: of('bought_processor') },
    { flow: 'taken back', told: of('back_processor'), ledger: of('back_ledger'), processor: of('back_processor') },
  ];
}

/** Flows whose sources disagree. */
export const differing = (money: readonly Money[]): Money[] =>
  money.filter(({ told, ledger, chain = ledger, processor = ledger }) =>
    [told, chain, processor].some((sum) => sum !== ledger),
  );

export const countEnds = (desk: Desk): Promise<{ flow: string; ended: string; count: bigint }[]> =>
  desk.query('select flow, ended, count(*) as count from told group by flow, ended order by flow, ended');

/** Complete responses without a charge, because their process was killed or frozen before the capture. */
export interface Spared {
  readonly count: number;
  /** Longest time between such a response and the fault. */
  readonly farthestSeconds: number;
}

export async function countSpared(desk: Desk): Promise<Spared> {
  const [row] = await desk.query<{ count: bigint; farthest: number }>(`
    select count(*) as count, coalesce(max(spared_by_seconds), 0) as farthest
    from tally join told on told.id = tally.told
    where flow in ${SPEECH} and ended = 'served' and charges = 0 and spared > 0`);
  return { count: Number(row?.count ?? 0), farthestSeconds: Number((row?.farthest ?? 0).toFixed(1)) };
}
