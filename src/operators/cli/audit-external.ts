import type { Config } from '../../config/config.ts';
import type { Database } from '../../db/database.ts';
import { Processor } from '../../payments/top-up/processor.ts';
import { openPayments } from '../../payments/x402/resolver.ts';
import { auditPayments, hasPayments, PAYMENT_RULES } from '../audit/chain-payments.ts';
import type { OutsideAudit } from '../audit/outside.ts';
import { auditClawbacks, CLAWBACK_RULES } from '../audit/processor-clawbacks.ts';
import { auditPurchases, hasPurchases, PURCHASE_RULES } from '../audit/processor-purchases.ts';
import { type AuditReport, keepResult, progress } from './audit-report.ts';
import type { CommandContext } from './command.ts';

/** Compares the books with processor and chain. */
export async function auditExternally(
  context: CommandContext,
  db: Database,
  config: Config,
  report: AuditReport,
): Promise<void> {
  const audits = [
    [PURCHASE_RULES, await auditedPurchases(context, db, config, auditPurchases)],
    [CLAWBACK_RULES, await auditedPurchases(context, db, config, auditClawbacks)],
    [PAYMENT_RULES, await auditedPayments(context, db, config)],
  ] as const;
  for (const [rules, outside] of audits) report.add(rules, outside);
  const isAnswered = audits.every(([, { unanswered }]) => unanswered.length === 0);
  const broken = audits.reduce((sum, [, { findings }]) => sum + findings.length, 0);
  // An incomplete comparison that found nothing is no result.
  if (isAnswered || broken > 0) await keepResult(context, db, 'outside', broken);
}

async function auditedPurchases(
  context: CommandContext,
  db: Database,
  { card }: Config,
  compare: typeof auditPurchases | typeof auditClawbacks,
): Promise<OutsideAudit> {
  if (card) return compare(db, new Processor(card.secretKey, card.apiBase), progress(context, 'at the processor'));
  return notAsked((await hasPurchases(db)) && 'there are purchases, but STRIPE_SECRET_KEY is unset.');
}

async function auditedPayments(context: CommandContext, db: Database, { x402 }: Config): Promise<OutsideAudit> {
  if (x402?.rpcUrls) {
    const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
    return auditPayments(db, chain, x402.asset, progress(context, 'payments')).finally(() => chain.close());
  }
  return notAsked((await hasPayments(db)) && 'there are payments in USDC, but X402_PAY_TO or X402_RPC_URL is unset.');
}

function notAsked(reason: string | false): OutsideAudit {
  return { findings: [], unanswered: reason ? [reason] : [] };
}
