import type { X402Config } from '../settings/x402-settings.ts';
import { type Area, type Finding, fault, off, ok } from './check.ts';
import { exchange, member, NoAnswer } from './exchange.ts';

const NAME = 'facilitator';
const SCHEME = 'exact';

/** Whether the facilitator takes payments of our scheme on our network (`GET {url}/supported`). */
export function facilitatorChecks(x402: X402Config | undefined): Area {
  if (!x402) return off([NAME], 'X402_PAY_TO is unset: x402 answers 503.');
  return { checks: [{ name: NAME, run: () => supportsUs(x402) }] };
}

async function supportsUs({ facilitatorUrl, facilitatorToken, asset }: X402Config): Promise<Finding> {
  const url = `${facilitatorUrl.replace(/\/+$/, '')}/supported`;
  const headers = facilitatorToken === undefined ? {} : { authorization: `Bearer ${facilitatorToken}` };
  let status: number;
  let json: unknown;
  try {
    ({ status, json } = await exchange(url, { headers }));
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    const fix = 'Correct X402_FACILITATOR_URL, or look at the network between.';
    return fault(`The facilitator gives no answer: ${error.message}.`, fix);
  }
  if (status === 401 || status === 403) {
    const fix = 'Set X402_FACILITATOR_AUTH to a token that it takes.';
    return fault(`The facilitator refuses us with status ${status}.`, fix);
  }
  const kinds = member(json, 'kinds');
  if (status !== 200 || !Array.isArray(kinds)) {
    const fix = 'Set X402_FACILITATOR_URL to the base of a facilitator of x402: {url}/supported, /verify, /settle.';
    return fault(`What answers is no facilitator (status ${status} at /supported).`, fix);
  }
  const networks = kinds.filter((kind) => member(kind, 'x402Version') === 2 && member(kind, 'scheme') === SCHEME);
  const isOurs = (network: unknown) =>
    network === asset.network || network === `${asset.network.slice(0, asset.network.indexOf(':'))}:*`;
  if (networks.some((kind) => isOurs(member(kind, 'network')))) {
    return ok(`The facilitator supports ${SCHEME} on ${asset.network}, version 2.`);
  }
  return fault(
    `The facilitator does not support ${SCHEME} on ${asset.network}, version 2.`,
    'Use a facilitator that does, or correct X402_NETWORK.',
  );
}
