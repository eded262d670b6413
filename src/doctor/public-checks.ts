import { routeOf } from '../contract/routes.ts';
import { isLoopback } from '../lib/loopback.ts';
import type { Config } from '../settings/config.ts';
import { Quotes } from '../x402/quotes.ts';
import { currentKey } from '../x402/signing-keys.ts';
import { type Area, type Finding, fault, ok, skipped, warning } from './check.ts';
import { type Answer, exchange, member, NoAnswer } from './exchange.ts';
import { forgedAreRefused, proxiesAreBelieved } from './proxy-checks.ts';
import { differences, isSignedBy } from './told-metadata.ts';

/** How many processes are asked behind one address, as far as it gives each connection to another one. */
const ASKED = 6;
const TEXT_SHA256 = '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824';

const pathOf = (operationId: string): string => routeOf(operationId).path;

/** What callers find at BASE_URL: an answer, this service, and the same of each process and proxy on the way. */
export function publicChecks(config: Config): Area {
  let answered: Promise<Finding> | undefined;
  const answer = () => {
    answered ??= answers(config);
    return answered;
  };
  let proxied: Promise<Finding> | undefined;
  const behind = (examine: (config: Config) => Promise<Finding>) => async () =>
    (await answer()).state === 'fault' ? skipped('BASE_URL does not answer as it should.') : examine(config);
  const proxies = () => {
    proxied ??= behind(proxiesAreBelieved)();
    return proxied;
  };
  return {
    checks: [
      { name: 'base-url', run: answer },
      { name: 'identity', run: behind(isThisOne) },
      { name: 'proxies', run: proxies },
      // What it sends would be counted by the one before.
      { name: 'forged-addresses', run: () => proxies().then(behind(forgedAreRefused)) },
    ],
  };
}

async function answers({ baseUrl, serviceName }: Config): Promise<Finding> {
  let answer: Answer;
  try {
    answer = await exchange(`${baseUrl}${pathOf('getHealth')}`);
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    const fix = 'Start the service; correct BASE_URL, its name in the DNS, the proxy in front, or its certificate.';
    return fault(`${baseUrl} gives no answer: ${error.message}.`, fix);
  }
  const name = member(answer.json, 'service');
  if (answer.status !== 200 || typeof name !== 'string' || member(answer.json, 'status') !== 'ok') {
    const fix = 'Have BASE_URL, or the proxy behind it, lead to this service.';
    return fault(`What answers at ${baseUrl} is no Speechgate (status ${answer.status}).`, fix);
  }
  if (name !== serviceName) {
    const fix = 'Have BASE_URL lead to this service, or give all its processes the same SERVICE_NAME.';
    return fault(`What answers at ${baseUrl} is the service of another name.`, fix);
  }
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol === 'https:' || isLoopback(hostname)) return ok(`${baseUrl} answers as ${serviceName}.`);
  const fix = 'Put a proxy with TLS in front, and set BASE_URL to its https address.';
  return warning(`${baseUrl} is plain http: account ids and payments can be read and changed on the way.`, fix);
}

/** Something that only this service can tell: metadata under our key, or a quote under our secret. */
async function isThisOne(config: Config): Promise<Finding> {
  if (config.x402 && config.signingKeys) return showsOurMetadata(config, currentKey(config.signingKeys).keyId);
  if (config.x402 && config.quotes) return makesOurQuotes(config, new Quotes(config.quotes.secrets, 1));
  return skipped('Without SIGNING_KEYS_FILE or QUOTE_SECRET, nothing that it tells proves that it is this service.');
}

async function showsOurMetadata(config: Config, keyId: string): Promise<Finding> {
  const url = `${config.baseUrl}${pathOf('getServiceMetadata')}`;
  const answers = await Promise.all(Array.from({ length: ASKED }, () => exchange(url)));
  const down = answers.find(({ status, json }) => status >= 500 && missingSetting(json) === undefined);
  if (down) return skipped(`It can't tell its metadata now (status ${down.status}); other lines say why.`);
  const lacking = answers.map(({ json }) => missingSetting(json)).find((setting) => setting !== undefined);
  if (lacking !== undefined) {
    const fix = 'Give all processes the same settings, and restart those that run with others.';
    return fault(`What runs at BASE_URL has no ${lacking}, which is set here.`, fix);
  }
  const foreign = answers.filter(({ json }) => !isSignedBy(json, config.signingKeys ?? []));
  if (foreign.length > 0) {
    const some = foreign.length === answers.length ? 'is' : 'is in part';
    return fault(
      `What answers ${some} another service, or has other keys: the metadata is not signed by ${keyId}.`,
      'Have BASE_URL lead to this service, and give all its processes the same SIGNING_KEYS_FILE; restart them.',
    );
  }
  const differing = new Set(answers.flatMap(({ json }) => differences(json, config)));
  if (differing.size === 0)
    return ok(`It is this service: its metadata is signed by ${keyId}, and says what is set here.`);
  const fix = 'Give all processes the same settings, and restart those that run with others.';
  return fault(`What runs at BASE_URL has other settings than these: ${[...differing].join(', ')}.`, fix);
}

/** What an answer of 503 names as not set. */
function missingSetting(json: unknown): string | undefined {
  const setting = member(json, 'error', 'details', 'setting');
  return typeof setting === 'string' ? setting : undefined;
}

async function makesOurQuotes(config: Config, quotes: Quotes): Promise<Finding> {
  const { id } = config.catalog.defaultModel;
  const json = { textLength: 5, textSha256: TEXT_SHA256, model: id };
  const url = `${config.baseUrl}${pathOf('createQuote')}`;
  const answers = await Promise.all(Array.from({ length: ASKED }, () => exchange(url, { method: 'POST', json })));
  const read = answers.map((answer) => quotes.read(String(member(answer.json, 'quoteToken'))));
  if ((await Promise.all(read)).every((quote) => quote !== undefined)) {
    return ok('It is this service: its quotes are signed by QUOTE_SECRET.');
  }
  const fix = 'Have BASE_URL lead to this service, and give all its processes the same QUOTE_SECRET; restart them.';
  return fault('What answers is another service, or has another QUOTE_SECRET: its quotes are not ours.', fix);
}
