import { randomBytes, randomUUID } from 'node:crypto';
import { BlockList, isIP } from 'node:net';
import { routeOf } from '../contract/routes.ts';
import type { Config } from '../settings/config.ts';
import { type Finding, fault, ok, skipped, warning } from './check.ts';
import { type Answer, exchange, NoAnswer } from './exchange.ts';

/** Requests by which it is told whether proxies are believed. */
const ASKED = 3;
const LOOPBACK = '127.0.0.1';
/** Where a proxy of this machine is asked from, so that its own address and ours are two. */
const OTHER_LOOPBACK = '127.9.9.9';

type Counts = Readonly<Record<'trusted' | 'untrusted', number>>;

/** Whether the proxies in front are those of TRUST_PROXY. The operators' listener counts the requests that came by them. */
export async function proxiesAreBelieved(config: Config): Promise<Finding> {
  const { adminPort, trustProxy } = config;
  if (adminPort === undefined) return skipped('ADMIN_PORT is unset, and only the service knows who its proxies are.');
  try {
    const before = await readCounts(config, adminPort);
    if (!before) return skipped("What answers at ADMIN_PORT is not this release's listener.");
    for (let asked = 0; asked < ASKED; asked++) await ask(config, 'getHealth');
    const after = await readCounts(config, adminPort);
    const came = (proxy: keyof Counts) => (after?.[proxy] ?? 0) - before[proxy];
    return judge(came('trusted'), came('untrusted'), trustProxy.length > 0);
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    return skipped(`The service, or its listener at ADMIN_PORT, can't be asked from here: ${error.message}.`);
  }
}

function judge(trusted: number, untrusted: number, hasSetting: boolean): Finding {
  if (untrusted > trusted) {
    return fault(
      'A proxy in front names its clients, and is not believed: all callers count as one address.',
      "Add the proxy's address or network to TRUST_PROXY.",
    );
  }
  if (trusted > 0) return ok('The proxy in front names its clients, and is believed.');
  if (!hasSetting) return ok('No proxy in front names clients, and TRUST_PROXY is unset.');
  return warning(
    'TRUST_PROXY is set, and no request through BASE_URL came by a proxy that names its clients to this process.',
    'Have the proxy send X-Forwarded-For, or unset TRUST_PROXY. If BASE_URL leads to other replicas, ask there.',
  );
}

async function readCounts({ admin }: Config, port: number): Promise<Counts | undefined> {
  const anywhere: Readonly<Record<string, string>> = { '0.0.0.0': LOOPBACK, '::': '::1' };
  const host = anywhere[admin.host] ?? admin.host;
  const { status, text } = await exchange(`http://${isIP(host) === 6 ? `[${host}]` : host}:${port}/metrics`);
  if (status !== 200 || !text.includes('speechgate_')) return undefined;
  const count = (proxy: string) =>
    Number(new RegExp(`^speechgate_forwarded_requests_total\\{proxy="${proxy}"\\} (\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return { trusted: count('trusted'), untrusted: count('untrusted') };
}

/**
 * Whether a caller can pass for somebody else. Names an invented client. Requests for audio without a link take a slot of their caller's address and tell what
 * is left of it, over all processes: who is believed to be somebody new has all but one.
 */
export async function forgedAreRefused(config: Config): Promise<Finding> {
  const fix = 'List the addresses of the proxies in TRUST_PROXY, and have them add to X-Forwarded-For what they see.';
  const vast = config.trustProxy.find(isVast);
  if (vast !== undefined) {
    return fault(`TRUST_PROXY believes half the world (${vast}): callers choose the address that limits count.`, fix);
  }
  try {
    const own = await ask(config, 'getJobAudio');
    const left = remaining(own);
    if (left === undefined || own.status === 429) return skipped('The limit of this address is used up, or not told.');
    if (own.localAddress !== undefined && isAmong(config.trustProxy, own.localAddress)) {
      return skipped('This machine is itself one that TRUST_PROXY believes; run it on another one to be sure.');
    }
    const network = randomBytes(2).toString('hex');
    const forged = await ask(config, 'getJobAudio', { 'x-forwarded-for': `2001:db8:${network}::1` });
    const leftAfter = remaining(forged);
    // Who was there before has one slot less than that.
    const isNew = forged.status !== 429 && leftAfter === config.rateLimit.max - 1;
    if (!isNew) return ok('A caller who names another address is not believed.');
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    return skipped(`BASE_URL gives no answer: ${error.message}.`);
  }
  return fault('A caller who names another address in X-Forwarded-For is believed: limits count nobody.', fix);
}

/** No network of one operator: 10.0.0.0/8 and fc00::/7 are the largest private ones. */
const isVast = (entry: string): boolean => {
  const [address = '', bits] = entry.split('/');
  return bits !== undefined && Number(bits) < (isIP(address) === 6 ? 7 : 8);
};

const remaining = ({ headers }: Answer): number | undefined => {
  const told = headers['x-ratelimit-remaining'];
  return typeof told === 'string' ? Number(told) : undefined;
};

function ask({ baseUrl }: Config, operationId: string, headers: Readonly<Record<string, string>> = {}) {
  const path = routeOf(operationId).path.replace(':jobId', randomUUID());
  const isHere = new URL(baseUrl).hostname === LOOPBACK && process.platform === 'linux';
  return exchange(baseUrl + path, { headers, localAddress: isHere ? OTHER_LOOPBACK : undefined });
}

function isAmong(networks: readonly string[], address: string): boolean {
  const list = new BlockList();
  for (const entry of networks) {
    const [network = '', bits] = entry.split('/');
    const family = isIP(network) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(network, family);
    else list.addSubnet(network, Number(bits), family);
  }
  return list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}
