/**
 * One step of a sale in a process of its own: `start CENTS` opens a checkout, `complete SESSION` credits what was paid
 * there, and `refund SESSION CENTS KEY` pays it back. Nothing else of the gateway is loaded.
 */
import { openDatabase } from '../../src/db/database.ts';
import { Clawbacks } from '../../src/payments/top-up/clawbacks.ts';
import { Processor } from '../../src/payments/top-up/processor.ts';
import { Purchases } from '../../src/payments/top-up/purchases.ts';
import { findCreditedPurchase, refundPurchase } from '../../src/payments/top-up/refund-purchase.ts';

const { DATABASE_URL = '', BASE_URL = '', STRIPE_SECRET_KEY = '', STRIPE_API_BASE, CHECKOUT_ORIGIN = '' } = process.env;
const db = openDatabase(DATABASE_URL, { maxConnections: 2 });
const processor = new Processor(STRIPE_SECRET_KEY, STRIPE_API_BASE, { checkoutOrigin: CHECKOUT_ORIGIN });
const purchases = new Purchases(db, processor, { baseUrl: BASE_URL, serviceName: 'speechgate' });

async function refund(session = '', cents = '', key = '') {
  const purchase = await findCreditedPurchase(db, session);
  if (!purchase) throw new Error(`no purchase has the session ${session}`);
  const parts = { db, processor, clawbacks: new Clawbacks(db, processor, purchases) };
  const action = { operator: 'alice', reason: 'ticket 7' };
  return refundPurchase(parts, { purchase, amountCents: Number(cents), key }, action);
}

const [step, ...args] = process.argv.slice(2);
const [first = ''] = args;
if (step === 'refund') console.log(await refund(...args));
else if (step === 'complete') console.log(await purchases.complete(first));
else {
  const request = { amountCents: Number(first), accountId: undefined, challengeId: undefined };
  console.log(await purchases.start(request));
}
await db.destroy();
