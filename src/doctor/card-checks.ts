import type { Database } from '../db/database.ts';
import { readInstance } from '../ledger/instance.ts';
import type { CardConfig } from '../settings/card-settings.ts';
import { type KeyAnswer, KeyProbe } from '../top-up/key-probe.ts';
import { type Area, type Finding, fault, off, ok, skipped } from './check.ts';
import type { KnownDatabase } from './known-database.ts';

const NAMES = ['card-key', 'card-mode', 'card-permissions'];

/** The card processor's key: whether it works, which mode it is of, and what it may do. */
export function cardChecks(known: KnownDatabase, card: CardConfig | undefined): Area {
  if (!card) return off(NAMES, 'STRIPE_SECRET_KEY is unset: card credits answer 503.');
  const probe = new KeyProbe(card.secretKey, card.apiBase);
  let answered: Promise<KeyAnswer> | undefined;
  const answer = () => {
    answered ??= probe.works();
    return answered;
  };
  return {
    checks: [
      { name: 'card-key', run: async () => judgeKey(await answer()) },
      { name: 'card-mode', run: known.reading((db) => isOfItsMode(db, card)) },
      {
        name: 'card-permissions',
        run: async () => {
          const { outcome } = await answer();
          return outcome === 'works' ? mayDoItsWork(probe) : skipped('The key does not work.');
        },
      },
    ],
  };
}

function judgeKey(answer: KeyAnswer): Finding {
  switch (answer.outcome) {
    case 'works':
      return ok('The card processor takes the key.');
    case 'refused':
      return fault('The card processor refuses the key.', 'Set STRIPE_SECRET_KEY to a key that is not revoked.');
    default:
      return fault(
        `The card processor gives no usable answer: ${answer.problem}`,
        'Look at its status page, the network between, and STRIPE_API_BASE where that is set.',
      );
  }
}

async function isOfItsMode(db: Database, { livemode }: CardConfig): Promise<Finding> {
  const mode = (isLive: boolean) => (isLive ? 'live' : 'test');
  const { livemode: first } = await readInstance(db);
  if (first === undefined) return ok(`It is a ${mode(livemode)} key, the first of this database.`);
  if (first === livemode) return ok(`It is a ${mode(livemode)} key, as the first one of this database was.`);
  return fault(
    `It is a ${mode(livemode)} key, and this database was first used with a ${mode(first)} one.`,
    'Use a key of that mode, or a database of its own: accounts of the one mode are unknown under a key of the other.',
  );
}

async function mayDoItsWork(probe: KeyProbe): Promise<Finding> {
  const { missing, unanswered } = await probe.permissions();
  if (missing.length > 0) {
    const fix = 'Add them to the restricted key in the dashboard of the card processor.';
    return fault(`The key lacks: ${missing.join('; ')}.`, fix);
  }
  if (unanswered.length === 0) return ok('The key may do all that the service does.');
  const fix = 'Look at the status page of the card processor; a server of STRIPE_API_BASE has to know these calls.';
  return fault(`It could not be told whether the key may: ${unanswered.join('; ')}.`, fix);
}
