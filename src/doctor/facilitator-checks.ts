import type { X402Config } from '../settings/x402-settings.ts';
import { refusesCredential } from '../x402/facilitator.ts';
import { makeOffer } from '../x402/offer.ts';
import { type Area, type Finding, fault, off, ok } from './check.ts';
import { type Answer, exchange, member, NoAnswer } from './exchange.ts';

const NAME = 'facilitator';
const SCHEME = 'exact';

/**
 * Whether the facilitator takes payments of our scheme on our network (`GET {url}/supported`), and from us: many show what
 * they support to anybody, and ask for the credential where it matters (`POST {url}/verify`).
 */
export function facilitatorChecks(x402: X402Config | undefined): Area {
  if (!x402) return off([NAME], 'X402_PAY_TO is unset: x402 answers 503.');
  return { checks: [{ name: NAME, run: () => examine(x402) }] };
}

async function examine(x402: X402Config): Promise<Finding> {
  const base = x402.facilitatorUrl.replace(/\/+$/, '');
  const { facilitatorToken: token } = x402;
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  try {
    const supported = await exchange(`${base}/supported`, { headers });
    const unsupported = judgeSupported(supported, x402);
    if (unsupported) return unsupported;
    const verified = await exchange(`${base}/verify`, { method: 'POST', headers, json: unpayable(x402) });
    return judgeVerified(verified, x402);
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    const fix = 'Correct X402_FACILITATOR_URL, or look at the network between.';
    return fault(`The facilitator gives no answer: ${error.message}.`, fix);
  }
}

function judgeSupported({ status, json }: Answer, { asset }: X402Config): Finding | undefined {
  if (isRefused(status, json)) return refused(status, 'supported');
  const kinds = member(json, 'kinds');
  if (status !== 200 || !Array.isArray(kinds)) return noFacilitator(status, 'supported');
  const networks = kinds.filter((kind) => member(kind, 'x402Version') === 2 && member(kind, 'scheme') === SCHEME);
  const isOurs = (network: unknown) =>
    network === asset.network || network === `${asset.network.slice(0, asset.network.indexOf(':'))}:*`;
  if (networks.some((kind) => isOurs(member(kind, 'network')))) return undefined;
  return fault(
    `The facilitator does not support ${SCHEME} on ${asset.network}, version 2.`,
    'Use a facilitator that does, or correct X402_NETWORK.',
  );
}

/** How it says that nobody can pay this is its own affair. */
function judgeVerified({ status, json }: Answer, { asset }: X402Config): Finding {
  if (isRefused(status, json)) return refused(status, 'verify');
  if (member(json, 'isValid') !== false && !BAD_PAYMENT.includes(status)) return noFacilitator(status, 'verify');
  return ok(`The facilitator supports ${SCHEME} on ${asset.network}, version 2, and takes our credential.`);
}

const BAD_PAYMENT = [400, 402, 412, 422];

const isRefused = (status: number, json: unknown): boolean =>
  refusesCredential(status, { isValid: member(json, 'isValid') });

const refused = (status: number, endpoint: string): Finding =>
  fault(
    `The facilitator refuses us with status ${status} at /${endpoint}.`,
    'Set X402_FACILITATOR_AUTH to a token that it takes.',
  );

const noFacilitator = (status: number, endpoint: string): Finding =>
  fault(
    `What answers is no facilitator (status ${status} at /${endpoint}).`,
    'Set X402_FACILITATOR_URL to the base of a facilitator of x402: {url}/supported, /verify, /settle.',
  );

const NOBODY = '0x0000000000000000000000000000000000000001';

/** A payment that nobody can have signed, and that expired in 1970. */
function unpayable({ asset, payees }: X402Config) {
  const payTo = payees.find(({ status }) => status === 'current')?.address ?? NOBODY;
  const offer = makeOffer(asset, 1n, payTo);
  const authorization = {
    ...{ from: NOBODY, to: payTo, value: '1', validAfter: '0', validBefore: '1' },
    nonce: `0x${'0'.repeat(64)}`,
  };
  const payload = { signature: `0x${'1'.repeat(130)}`, authorization };
  return {
    x402Version: 2,
    paymentPayload: { x402Version: 2, accepted: offer, payload },
    paymentRequirements: offer,
  };
}
