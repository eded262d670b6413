import { PassThrough } from 'node:stream';
import { parseConnectionUrl } from 'nodemailer/lib/shared';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import type { CardConfig } from '../../config/card-settings.ts';
import type { Catalog } from '../../config/catalog.ts';
import type { MailConfig } from '../../config/feedback-settings.ts';
import type { FacilitatorConfig, X402Config } from '../../config/x402-settings.ts';
import type { Database } from '../../db/database.ts';
import { readInstance } from '../../ledger/database-identity.ts';
import { KeyProbe } from '../../payments/top-up/key-probe.ts';
import { makeOffer } from '../../payments/x402/challenge.ts';
import { authorizationOf, refusesCredential } from '../../payments/x402/facilitator.ts';
import { collectSpeech, serversOf } from '../../speech/open-provider.ts';
import { openAiCompatible } from '../../speech/openai-compatible.ts';
import { SpeechError, type SpeechProvider } from '../../speech/provider.ts';
import { type Check, type DoctorOptions, type Finding, fault, off, ok, skipped } from './check.ts';
import { exchange, member, NoAnswer, type ProbeResponse } from './exchange.ts';
import { refusesLowestPrice } from './lowest-price.ts';

/** Tests each upstream of each model alone, because failover would hide a broken one. */
export function speechChecks({ config: { speech, catalog }, speaks }: DoctorOptions): readonly Check[] {
  if (!speech) return off(['upstream'], 'Speech is off, because SPEECH_BASE_URL is unset. Set it to turn speech on.');
  if (!speaks) return off(['upstream'], '--no-speak leaves this check out.');
  const servers = new Map(serversOf(speech).map((server) => [server.name, server]));
  return catalog.models.flatMap((model) =>
    model.upstreams.flatMap((upstream) => {
      const server = servers.get(upstream.name);
      if (!server) return [];
      const run = () => {
        if (!model.available) return skipped('CATALOG_FILE marks the model as not available, so no action is needed.');
        const { upstreamVoice } = model.defaultVoice;
        const voice = upstream.voices.get(upstreamVoice) ?? upstreamVoice;
        const provider = openAiCompatible({ ...server, firstByteTimeoutMs: speech.timeoutMs });
        return speaksModel(provider, upstream.model, voice, speech.timeoutMs).finally(() => provider.close());
      };
      const about = model.upstreams.length === 1 ? model.id : `${model.id} by ${upstream.name}`;
      return [{ name: 'upstream', about, limitMs: speech.timeoutMs + 5_000, run }];
    }),
  );
}

async function speaksModel(
  provider: SpeechProvider,
  model: string,
  voice: string,
  timeoutMs: number,
): Promise<Finding> {
  const asked = `model ${model} and voice ${voice}`;
  const begunAt = performance.now();
  try {
    const utterance = { text: 'Hello', model, voice, speed: 1 };
    const { mimeType, audio } = await collectSpeech(provider, utterance, AbortSignal.timeout(timeoutMs));
    if (mimeType !== 'audio/mpeg') {
      const fix = 'Let the upstream return MP3 for response_format mp3. Only streamed card speech accepts WAV.';
      return fault(`The upstream returned WAV instead of MP3 for ${asked}.`, fix);
    }
    const ms = Math.round(performance.now() - begunAt);
    return ok(`The upstream spoke a word with ${asked}: ${audio.length} bytes in ${ms} ms.`);
  } catch (error) {
    if (!(error instanceof SpeechError)) throw error;
    const { code } = (error.cause ?? {}) as { code?: string };
    const reason = code === undefined ? error.message : error.message.replace(/\.$/, ` (${code}).`);
    return fault(
      `The upstream failed for ${asked}: ${reason}`,
      'Read the log of the upstream. Correct its address or key (SPEECH_BASE_URL, SPEECH_API_KEY), or its model and ' +
        'voice names in CATALOG_FILE.',
    );
  }
}

export function cardChecks({ config: { card, baseUrl } }: DoctorOptions): readonly Check[] {
  const names = ['card-key', 'card-mode', 'card-permissions', 'card-webhook'];
  if (!card) return off(names, 'Card credits are off, because STRIPE_SECRET_KEY is unset. Set it to turn them on.');
  const probe = new KeyProbe(card.secretKey, card.apiBase);
  return [
    { name: 'card-key', run: () => keyWorks(probe) },
    { name: 'card-mode', needs: 'tables', run: ({ db }) => isOfItsMode(db, card) },
    { name: 'card-permissions', run: () => mayDoItsWork(probe) },
    card.webhookSecret === undefined
      ? {
          name: 'card-webhook',
          run: () => ok('STRIPE_WEBHOOK_SECRET is unset, so the service polls the card processor.'),
        }
      : { name: 'card-webhook', run: () => sendsEvents(probe, `${baseUrl}/webhooks/stripe`) },
  ];
}

async function keyWorks(probe: KeyProbe): Promise<Finding> {
  const answer = await probe.works();
  if (answer.outcome === 'works') return ok('The card processor accepts STRIPE_SECRET_KEY.');
  if (answer.outcome === 'refused') {
    return fault('The card processor refuses the key in STRIPE_SECRET_KEY.', 'Set STRIPE_SECRET_KEY to a valid key.');
  }
  return fault(
    `The card processor gave no usable answer: ${answer.problem}`,
    "Check the processor's status page, your network, and STRIPE_API_BASE if it is set.",
  );
}

async function isOfItsMode(db: Database, { livemode }: CardConfig): Promise<Finding> {
  const mode = (isLive: boolean) => (isLive ? 'live' : 'test');
  const { livemode: first } = await readInstance(db);
  if (first === undefined) return ok(`STRIPE_SECRET_KEY is a ${mode(livemode)} key, the first key of this database.`);
  if (first === livemode)
    return ok(`STRIPE_SECRET_KEY is a ${mode(livemode)} key, like the first key of this database.`);
  return fault(
    `STRIPE_SECRET_KEY is a ${mode(livemode)} key, but this database was first used with a ${mode(first)} key.`,
    `Set STRIPE_SECRET_KEY to a ${mode(first)} key, or use another database. A key sees only the accounts of its own mode.`,
  );
}

async function mayDoItsWork(probe: KeyProbe): Promise<Finding> {
  if ((await probe.works()).outcome !== 'works')
    return skipped('STRIPE_SECRET_KEY does not work: fix what the check "card-key" says, then run doctor again.');
  const { missing, unanswered } = await probe.permissions();
  if (missing.length > 0) {
    const fix = 'Add these permissions to the restricted key in the dashboard of the card processor.';
    return fault(`STRIPE_SECRET_KEY lacks permissions: ${missing.join('; ')}.`, fix);
  }
  if (unanswered.length === 0) return ok('STRIPE_SECRET_KEY has all permissions that the service needs.');
  const fix = 'Check the status page of the card processor. A server at STRIPE_API_BASE must support these calls.';
  return fault(`These permissions of STRIPE_SECRET_KEY could not be checked: ${unanswered.join('; ')}.`, fix);
}

const EVENTS = [
  ...['checkout.session.completed', 'checkout.session.async_payment_succeeded', 'refund.created', 'refund.updated'],
  ...['refund.failed', 'charge.dispute.created', 'charge.dispute.updated', 'charge.dispute.closed'],
  ...['charge.dispute.funds_withdrawn', 'charge.dispute.funds_reinstated'],
];

/** Whether the secret is that of the endpoint, no call tells: the processor shows it once. */
async function sendsEvents(probe: KeyProbe, url: string): Promise<Finding> {
  const endpoints = await probe.endpoints();
  if (typeof endpoints === 'string') {
    return skipped(
      `The webhook endpoints can't be listed (${endpoints}). Check in the processor's dashboard that ${url} is enabled.`,
    );
  }
  const ours = endpoints.filter((endpoint) => endpoint.url === url);
  const enabled = ours.filter(({ status }) => status === 'enabled');
  if (enabled.length === 0) {
    const problem = ours.length === 0 ? 'has no webhook endpoint' : 'has disabled the webhook endpoint';
    const fix = 'Add or enable the endpoint in the dashboard of the card processor. Until then the service polls.';
    return fault(`The card processor ${problem} ${url}.`, fix);
  }
  const sent = new Set(enabled.flatMap((endpoint) => endpoint.enabled_events));
  const missing = sent.has('*') ? [] : EVENTS.filter((event) => !sent.has(event));
  if (missing.length === 0)
    return ok(`The card processor sends events to ${url}. Compare STRIPE_WEBHOOK_SECRET with the dashboard yourself.`);
  return fault(
    `The webhook endpoint ${url} does not get these events: ${missing.join(', ')}.`,
    'Add these events to the endpoint in the dashboard of the card processor.',
  );
}

const SCHEME = 'exact';
const NOBODY = '0x0000000000000000000000000000000000000001';

/** Many facilitators serve `/supported` to everybody and check the credential only at `/verify`, so this calls both. */
export function facilitatorChecks({ config: { x402, catalog } }: DoctorOptions): readonly Check[] {
  if (!x402) return off(['facilitator'], 'USDC payment is off, because X402_PAY_TO is unset. Set it to turn it on.');
  return x402.facilitators.map((facilitator) => ({
    name: 'facilitator',
    ...(x402.facilitators.length > 1 && { about: new URL(facilitator.url).host }),
    run: () => takesOurPayments(facilitator, x402, catalog),
  }));
}

async function takesOurPayments(
  { url, credential, setting }: FacilitatorConfig,
  x402: X402Config,
  catalog: Catalog,
): Promise<Finding> {
  const base = url.replace(/\/+$/, '');
  const { host, pathname } = new URL(base);
  const pathOf = (endpoint: string) => `${host}${pathname.replace(/\/$/, '')}/${endpoint}`;
  try {
    const supported = await authorizationOf(credential, `GET ${pathOf('supported')}`);
    const unsupported = judgeSupported(await exchange(`${base}/supported`, { headers: supported }), x402, setting);
    if (unsupported) return unsupported;
    const verify = async (json: object) => {
      const headers = await authorizationOf(credential, `POST ${pathOf('verify')}`);
      return exchange(`${base}/verify`, { method: 'POST', headers, json });
    };
    const finding = judgeVerified(await verify(unpayable(x402)), x402, setting);
    return finding.state === 'ok' ? ((await refusesLowestPrice(verify, x402, catalog)) ?? finding) : finding;
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    const fix = 'Correct the URL of the facilitator, or check your network.';
    return fault(`The facilitator did not answer: ${error.message}.`, fix);
  }
}

function judgeSupported(answer: ProbeResponse, { asset }: X402Config, setting: string): Finding | undefined {
  const kinds = member(answer.json, 'kinds');
  const refusal = refused(answer, 'supported', setting);
  if (refusal) return refusal;
  if (answer.status !== 200 || !Array.isArray(kinds)) return noFacilitator(answer, 'supported');
  const ours = [asset.network, `${asset.network.slice(0, asset.network.indexOf(':'))}:*`];
  const isOurs = (kind: unknown) =>
    member(kind, 'x402Version') === 2 &&
    member(kind, 'scheme') === SCHEME &&
    ours.some((network) => network === member(kind, 'network'));
  if (kinds.some(isOurs)) return undefined;
  return fault(
    `The facilitator does not support x402 version 2 with the scheme ${SCHEME} on ${asset.network}.`,
    'Use a facilitator that supports it, or correct X402_NETWORK.',
  );
}

/** Facilitators report an invalid payment in different ways. */
function judgeVerified(answer: ProbeResponse, { asset }: X402Config, setting: string): Finding {
  const refusal = refused(answer, 'verify', setting);
  if (refusal) return refusal;
  const isVerdict = member(answer.json, 'isValid') === false || [400, 402, 412, 422].includes(answer.status);
  if (!isVerdict) return noFacilitator(answer, 'verify');
  return ok(
    `The facilitator supports x402 version 2 (${SCHEME}) on ${asset.network}, and refused no test request as unauthorized.`,
  );
}

/** The credential is unknown (401), may not do this (403), or has used up its requests (429). */
function refused({ status, json }: ProbeResponse, endpoint: string, setting: string): Finding | undefined {
  if (status === 429) {
    const fix = 'Wait, ask the facilitator for a higher limit, or add another facilitator to X402_FACILITATORS.';
    return fault(`The facilitator refuses requests with status 429 (rate limit) at /${endpoint}.`, fix);
  }
  if (!refusesCredential(status, { isValid: member(json, 'isValid') ?? undefined })) return undefined;
  const fix =
    status === 401
      ? `Set ${setting} to a valid credential. If it is a key, also synchronize the clock of this machine.`
      : `Give the credential in ${setting} the rights to verify and settle, or pay the facilitator's fees.`;
  return fault(`The facilitator refuses our credential with status ${status} at /${endpoint}.`, fix);
}

const noFacilitator = ({ status }: ProbeResponse, endpoint: string): Finding =>
  fault(
    `The server at the facilitator's URL did not answer like a facilitator (status ${status} at /${endpoint}).`,
    'Check that the URL is the base of an x402 facilitator, which serves /supported, /verify and /settle, and that it works.',
  );

/** A payment that nobody can have signed, and that expired in 1970. */
function unpayable({ asset, payees }: X402Config) {
  const payTo = payees.find(({ status }) => status === 'current')?.address ?? NOBODY;
  const offer = makeOffer(asset, 1n, payTo);
  const nonce = `0x${'0'.repeat(64)}`;
  const authorization = { from: NOBODY, to: payTo, value: '1', validAfter: '0', validBefore: '1', nonce };
  const payload = { signature: `0x${'1'.repeat(130)}`, authorization };
  return {
    x402Version: 2,
    paymentPayload: { x402Version: 2, accepted: offer, payload },
    paymentRequirements: offer,
  };
}

const MAIL_ANSWER_MS = 10_000;

export function mailChecks({ config: { feedback } }: DoctorOptions): readonly Check[] {
  if (!feedback) return off(['mail'], 'Feedback is off, because FEEDBACK_SECRET is unset. Set it to turn feedback on.');
  if (!feedback.mail) return off(['mail'], 'Feedback is not mailed, because SMTP_URL is unset. Set it to get mail.');
  const { mail } = feedback;
  return [{ name: 'mail', run: () => takesMail(mail) }];
}

interface SmtpError extends Error {
  readonly code?: string;
  readonly responseCode?: number;
}

async function takesMail({ smtpUrl, from, to }: MailConfig): Promise<Finding> {
  for (const { address } of to) {
    try {
      await offerMail(smtpUrl, from.address, address);
    } catch (error) {
      return mailFault(error as SmtpError, address);
    }
  }
  return ok(`The mail server accepts mail for ${to.length === 1 ? 'the address' : `all ${to.length} addresses`}.`);
}

/** Without the server's text, which may repeat our credentials. */
function mailFault({ code, responseCode }: SmtpError, address: string): Finding {
  const status = responseCode === undefined ? '' : ` (status ${responseCode})`;
  if (code === 'EAUTH') {
    return fault(`The mail server refuses our credentials${status}.`, 'Correct the user and password in SMTP_URL.');
  }
  if (code === 'EENVELOPE') {
    const fix = 'Correct FEEDBACK_FROM and FEEDBACK_TO, or let the mail server accept mail from this machine.';
    return fault(`The mail server refuses mail from FEEDBACK_FROM to ${address}${status}.`, fix);
  }
  const fix =
    'Correct the scheme (smtp, smtps), host and port in SMTP_URL, or check your network and the certificate of the mail server.';
  return fault(`The mail server can't be used: ${code ?? 'no answer'}${status}.`, fix);
}

/** Stops before the message is sent, so that no mail arrives. */
function offerMail(smtpUrl: string, from: string, to: string): Promise<void> {
  const options = parseConnectionUrl(smtpUrl);
  const connection = new SMTPConnection({
    ...options,
    connectionTimeout: MAIL_ANSWER_MS,
    greetingTimeout: MAIL_ANSWER_MS,
    socketTimeout: MAIL_ANSWER_MS,
    dnsTimeout: MAIL_ANSWER_MS,
  });
  return new Promise<void>((resolve, reject) => {
    const offer = () => {
      // The stream is read once the server accepts the message.
      const message = new PassThrough();
      message.once('resume', () => resolve());
      connection.send({ from, to: [to] }, message, (error) => (error ? reject(error) : resolve()));
    };
    connection.once('error', reject);
    connection.once('end', () => reject(new Error('The mail server closed the connection.')));
    connection.connect((error) => {
      if (error) reject(error);
      else if (options.auth) connection.login(options.auth, (refusal) => (refusal ? reject(refusal) : offer()));
      else offer();
    });
  }).finally(() => connection.close());
}
