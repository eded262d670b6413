import { createPublicKey, randomBytes, randomUUID, verify } from 'node:crypto';
import { isIP } from 'node:net';
import { compile } from '@fastify/proxy-addr';
import { baseUrlWarning, type Config } from '../../config/config.ts';
import { currentKey, publicKeyJwk, type SigningKey } from '../../config/signing-keys.ts';
import { routeOf } from '../../contract/routes.ts';
import { canonicalize } from '../../lib/canonical-json.ts';
import { isLoopback } from '../../lib/loopback.ts';
import { formatUsd } from '../../lib/money.ts';
import { Quotes } from '../../payments/x402/quotes.ts';
import { synchronousCatalog } from '../../speech/order.ts';
import { priceMicroUsd } from '../../speech/price.ts';
import { type Check, type DoctorContext, type Finding, fault, ok, skipped, warning } from './check.ts';
import { type Call, exchange, member, NoAnswer, type ProbeResponse } from './exchange.ts';

const PROCESSES_ASKED = 6;
const TEXT_SHA256 = '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824';

const pathOf = (operationId: string): string => routeOf(operationId).path;

export const PUBLIC_CHECKS: readonly Check[] = [
  { name: 'base-url', run: answersOnce },
  { name: 'identity', run: (context) => behindBaseUrl(context, isThisOne) },
  { name: 'proxies', run: proxiesOnce },
  {
    name: 'forged-addresses',
    // The check `proxies` counts requests, so it must end before this one sends any.
    run: async (context) => {
      await proxiesOnce(context);
      return behindBaseUrl(context, forgedAreRefused);
    },
  },
];

function answersOnce(context: DoctorContext): Promise<Finding> {
  return context.once('base-url', () => answers(context));
}

function proxiesOnce(context: DoctorContext): Promise<Finding> {
  return context.once('proxies', () => behindBaseUrl(context, proxiesAreBelieved));
}

async function behindBaseUrl(context: DoctorContext, examine: (config: Config) => Promise<Finding>): Promise<Finding> {
  const { state } = await answersOnce(context);
  return state === 'fault'
    ? skipped('BASE_URL does not work: fix what the check "base-url" says, then run doctor again.')
    : examine(context.config);
}

async function answers({ config, isSandbox }: DoctorContext): Promise<Finding> {
  const { baseUrl, serviceName } = config;
  let answer: ProbeResponse;
  try {
    answer = await exchange(`${baseUrl}${pathOf('getHealth')}`);
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    const fix = 'Start the service, or correct BASE_URL, its DNS name, the proxy in front, or its certificate.';
    return fault(`BASE_URL (${baseUrl}) did not answer: ${error.message}.`, fix);
  }
  const name = member(answer.json, 'service');
  if (answer.status !== 200 || typeof name !== 'string' || member(answer.json, 'status') !== 'ok') {
    const fix = 'Start the service, set BASE_URL to its address, or correct the proxy in front of it.';
    return fault(`The server at BASE_URL (${baseUrl}) did not answer like Speechgate (status ${answer.status}).`, fix);
  }
  if (name !== serviceName) {
    const fix = 'Set BASE_URL to the address of this service, or SERVICE_NAME to the same name in all processes.';
    return fault(`The service at BASE_URL (${baseUrl}) has another SERVICE_NAME than these settings.`, fix);
  }
  const unset = isSandbox ? undefined : baseUrlWarning(config);
  if (unset) return warning(`${unset}.`, 'Set BASE_URL.');
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol === 'https:' || isLoopback(hostname))
    return ok(`The service at BASE_URL (${baseUrl}) answers as ${serviceName}.`);
  const fix = 'Put a TLS proxy in front of the service, and set BASE_URL to its https address.';
  return warning(
    `BASE_URL (${baseUrl}) is plain http: others on the network can read and change account ids and payments.`,
    fix,
  );
}

/** Only this service has metadata signed by our key, or quotes signed by our secret. */
async function isThisOne(config: Config): Promise<Finding> {
  if (!config.x402) return skipped('X402_PAY_TO is unset, so no signature proves it. Check BASE_URL yourself.');
  if (config.signingKeys) return showsOurMetadata(config, currentKey(config.signingKeys).keyId);
  if (config.quotes) return makesOurQuotes(config, new Quotes(config.quotes.secrets, 1));
  return skipped(
    'SIGNING_KEYS_FILE and QUOTE_SECRET are unset, so no signature proves it. Set one, or check BASE_URL yourself.',
  );
}

async function showsOurMetadata(config: Config, keyId: string): Promise<Finding> {
  const answers = await askAll(config, 'getServiceMetadata');
  const fix = 'Give all processes of the service the same settings, and restart those with other settings.';
  const down = answers.find(({ status, json }) => status >= 500 && missingSetting(json) === undefined);
  if (down) return skipped(`BASE_URL returned no metadata (status ${down.status}). Read the log of the service.`);
  const lacking = answers.map(({ json }) => missingSetting(json)).find((setting) => setting !== undefined);
  if (lacking !== undefined) return fault(`The service at BASE_URL runs without ${lacking}, which is set here.`, fix);
  const foreign = answers.filter(({ json }) => !isSignedBy(json, config.signingKeys ?? []));
  if (foreign.length > 0) {
    const some = foreign.length === answers.length ? 'leads' : 'sometimes leads';
    return fault(
      `BASE_URL ${some} to another service, or to a process with other keys: the metadata is not signed by ${keyId}.`,
      'Set BASE_URL to the address of this service. Give all its processes the same SIGNING_KEYS_FILE, and restart them.',
    );
  }
  const differing = new Set(answers.flatMap(({ json }) => differences(json, config)));
  if (differing.size === 0)
    return ok(`BASE_URL leads to this service: the metadata is signed by ${keyId} and matches these settings.`);
  return fault(`The service at BASE_URL has other values for these settings: ${[...differing].join(', ')}.`, fix);
}

const askAll = ({ baseUrl }: Config, operationId: string, call?: Call): Promise<ProbeResponse[]> =>
  Promise.all(Array.from({ length: PROCESSES_ASKED }, () => exchange(baseUrl + pathOf(operationId), call)));

function missingSetting(json: unknown): string | undefined {
  const setting = member(json, 'error', 'details', 'setting');
  return typeof setting === 'string' ? setting : undefined;
}

async function makesOurQuotes(config: Config, quotes: Quotes): Promise<Finding> {
  const { id } = config.catalog.defaultModel;
  const json = { textLength: 5, textSha256: TEXT_SHA256, model: id };
  const answers = await askAll(config, 'createQuote', { method: 'POST', json });
  const read = answers.map((answer) => quotes.read(String(member(answer.json, 'quoteToken'))));
  if ((await Promise.all(read)).every((quote) => quote !== undefined)) {
    return ok('BASE_URL leads to this service: the quotes are signed with QUOTE_SECRET.');
  }
  const fix =
    'Set BASE_URL to the address of this service. Give all its processes the same QUOTE_SECRET, and restart them.';
  return fault(
    'BASE_URL leads to another service or a process with another QUOTE_SECRET, or the service made no quote.',
    fix,
  );
}

const HEALTH_REQUESTS = 3;
const LOOPBACK = '127.0.0.1';
const OTHER_LOOPBACK = '127.9.9.9';

/** The operators' listener counts the requests that came through a proxy. */
async function proxiesAreBelieved(config: Config): Promise<Finding> {
  const { adminPort, trustProxy } = config;
  if (adminPort === undefined) return skipped('This check needs the metrics at ADMIN_PORT. Set it to a free port.');
  try {
    const before = await readCounts(config, adminPort);
    if (!before) return skipped('ADMIN_PORT returns no metrics of this release. Correct it, or start this release.');
    for (let asked = 0; asked < HEALTH_REQUESTS; asked++) await ask(config, 'getHealth');
    const after = (await readCounts(config, adminPort)) ?? { trusted: 0, untrusted: 0, nameless: 0 };
    if (after.nameless > before.nameless) {
      return warning(
        'The trusted proxy sends an X-Forwarded-For that is not an address, so clients may share a rate limit.',
        "Configure the proxy to write the client's address to X-Forwarded-For.",
      );
    }
    const trusted = after.trusted - before.trusted;
    if (after.untrusted - before.untrusted > trusted) {
      return fault(
        'Requests have X-Forwarded-For from an address that TRUST_PROXY does not name. If it is a proxy, its clients share one rate limit.',
        'Add the address or network of your proxy to TRUST_PROXY.',
      );
    }
    if (trusted > 0) return ok('The proxy forwards client addresses, and TRUST_PROXY includes it.');
    if (trustProxy.length === 0)
      return ok('No test request reached this process with X-Forwarded-For, and TRUST_PROXY is unset.');
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    return skipped(`The service or its ADMIN_PORT did not answer: ${error.message}. Start it, and run doctor again.`);
  }
  return warning(
    'TRUST_PROXY names a proxy, but test requests to BASE_URL did not reach this process through it with X-Forwarded-For.',
    'Configure the proxy to send X-Forwarded-For, or unset TRUST_PROXY. With several replicas, run doctor on each.',
  );
}

async function readCounts({ admin }: Config, port: number) {
  const anywhere: Readonly<Record<string, string>> = { '0.0.0.0': LOOPBACK, '::': '::1' };
  const host = anywhere[admin.host] ?? admin.host;
  const { status, text } = await exchange(`http://${isIP(host) === 6 ? `[${host}]` : host}:${port}/metrics`);
  if (status !== 200 || !text.includes('speechgate_')) return undefined;
  const count = (proxy: string) =>
    Number(new RegExp(`^speechgate_forwarded_requests_total\\{proxy="${proxy}"\\} (\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return { trusted: count('trusted'), untrusted: count('untrusted'), nameless: count('nameless') };
}

/**
 * Requests audio with an invented X-Forwarded-For. Such a request takes a slot of its address, and reports how many are
 * left. If all but one are left, the service believed the forged address.
 */
async function forgedAreRefused(config: Config): Promise<Finding> {
  const fix =
    'List only the addresses of your proxies in TRUST_PROXY. Configure them to append the client address to X-Forwarded-For.';
  // The service would log the probe as a proxy that it must trust.
  if (config.trustProxy.length === 0) return ok('TRUST_PROXY is unset: no address in X-Forwarded-For is trusted.');
  const vast = config.trustProxy.find(isVast);
  if (vast !== undefined) {
    return fault(
      `TRUST_PROXY trusts too many addresses (${vast}): callers can invent addresses and avoid rate limits.`,
      fix,
    );
  }
  try {
    const own = await ask(config, 'getJobAudio');
    const left = remaining(own);
    if (left === undefined || own.status === 429)
      return skipped('The rate limit of this machine is used up or unknown. Run doctor again in a minute.');
    if (own.localAddress !== undefined && compile([...config.trustProxy])(own.localAddress, 0)) {
      return skipped(
        'TRUST_PROXY trusts this machine, so the test would prove nothing. Run doctor on another machine.',
      );
    }
    const network = randomBytes(2).toString('hex');
    const forged = await ask(config, 'getJobAudio', { 'x-forwarded-for': `2001:db8:${network}::1` });
    const leftAfter = remaining(forged);
    // Our real address has used two slots by now.
    const isNew = forged.status !== 429 && leftAfter === config.rateLimit.max - 1;
    if (!isNew) return ok('The service ignores a forged address in X-Forwarded-For, as it should.');
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    return skipped(`BASE_URL did not answer (${error.message}). Run doctor again.`);
  }
  return fault('The service trusts a forged address in X-Forwarded-For: callers can avoid rate limits.', fix);
}

/** Larger than any private network. The largest are 10.0.0.0/8 and fc00::/7. */
const isVast = (entry: string): boolean => {
  const [address = '', bits] = entry.split('/');
  return bits !== undefined && Number(bits) < (isIP(address) === 6 ? 7 : 8);
};

const remaining = ({ headers }: ProbeResponse): number | undefined => {
  const remaining = headers['x-ratelimit-remaining'];
  return typeof remaining === 'string' ? Number(remaining) : undefined;
};

function ask({ baseUrl }: Config, operationId: string, headers: Readonly<Record<string, string>> = {}) {
  const path = routeOf(operationId).path.replace(':jobId', randomUUID());
  const isHere = new URL(baseUrl).hostname === LOOPBACK && process.platform === 'linux';
  return exchange(baseUrl + path, { headers, localAddress: isHere ? OTHER_LOOPBACK : undefined });
}

function isSignedBy(document: unknown, keys: readonly SigningKey[]): boolean {
  const payload = member(document, 'payload');
  const value = member(document, 'signature', 'value');
  const key = keys.find(({ keyId }) => keyId === member(document, 'signature', 'keyId'));
  if (!key || typeof payload !== 'object' || payload === null || typeof value !== 'string') return false;
  const { kty, crv, x, y } = publicKeyJwk(key);
  const publicKey = createPublicKey({ key: { kty, crv, x, y }, format: 'jwk' });
  const signed = Buffer.from(canonicalize(payload));
  return verify('sha256', signed, { key: publicKey, dsaEncoding: 'ieee-p1363' }, Buffer.from(value, 'base64url'));
}

function differences(document: unknown, { baseUrl, x402, catalog, signingKeys }: Config): string[] {
  const published = (...path: readonly string[]) => member(document, 'payload', ...path);
  const list = (value: unknown, ...names: readonly string[]) =>
    Array.isArray(value) ? value.map((entry) => names.map((name) => member(entry, name)).join(' ')).join(', ') : '';
  const payees = x402?.payees.map(({ address, status }) => `${address} ${status}`).join(', ');
  const keys = signingKeys?.map(({ keyId, status }) => `${keyId} ${status}`).join(', ');
  const models = synchronousCatalog(catalog)
    .models.map(
      ({ id, maxInputCharacters: most, ratePicoUsd }) => `${id} ${most} ${formatUsd(priceMicroUsd(most, ratePicoUsd))}`,
    )
    .join(', ');
  const compared: readonly (readonly [setting: string, here: unknown, there: unknown])[] = [
    ['BASE_URL', baseUrl, published('service', 'origin')],
    ['X402_NETWORK', x402?.asset.network, published('payment', 'network')],
    ['X402_ASSET', x402?.asset.address, published('payment', 'asset', 'address')],
    ['X402_ASSET_NAME', x402?.asset.name, published('payment', 'asset', 'name')],
    ['X402_PAY_TO', payees, list(published('payment', 'payees'), 'address', 'status')],
    ['SIGNING_KEYS_FILE', keys, list(published('trust', 'keys'), 'keyId', 'status')],
    ['CATALOG_FILE', models, list(published('pricing', 'models'), 'id', 'maxCharactersPerRequest', 'maxChargeUsd')],
  ];
  return compared.filter(([, here, there]) => here !== there).map(([setting]) => setting);
}
