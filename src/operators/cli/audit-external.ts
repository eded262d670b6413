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
  const { card, x402 } = config;
  const processor = card && new Processor(card.secretKey, card.apiBase);
  const comparePurchases = async (compare: typeof auditPurchases | typeof auditClawbacks) =>
    processor
      ? compare(db, processor, progress(context, 'at the processor'))
      : notAsked(
          (await hasPurchases(db)) &&
            'the ledger has card purchases, but STRIPE_SECRET_KEY is unset. Set it to compare them.',
        );
  const audits = [
    [PURCHASE_RULES, await comparePurchases(auditPurchases)],
    [CLAWBACK_RULES, await comparePurchases(auditClawbacks)],
    [PAYMENT_RULES, await comparePayments(context, db, x402)],
  ] as const;
  for (const [rules, outside] of audits) report.add(rules, outside);
  const isAnswered = audits.every(([, { unanswered }]) => unanswered.length === 0);
  const broken = audits.reduce((sum, [, { findings }]) => sum + findings.length, 0);
  // An incomplete comparison that found nothing is no result.
  if (isAnswered || broken > 0) await keepResult(context, db, 'outside', broken);
}

async function comparePayments(context: CommandContext, db: Database, x402: Config['x402']): Promise<OutsideAudit> {
  if (x402?.rpcUrls) {
    const { chain } = openPayments(db, x402.asset, x402.rpcUrls);
    return auditPayments(db, chain, x402.asset, progress(context, 'payments')).finally(() => chain.close());
  }
  return notAsked(
    (await hasPayments(db)) &&
      'the ledger has USDC payments, but X402_PAY_TO or X402_RPC_URL is unset. Set both to compare them.',
  );
}

function notAsked(reason: string | false): OutsideAudit {
  return { findings: [], unanswered: reason ? [reason] : [] };
}
