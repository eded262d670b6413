/** The limits that the contract declares are those that the guide, the challenges and the metadata publish. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'tap';
import { parse } from 'yaml';
import { MAX_TOKEN_LENGTH } from '../../src/audio/link-token.ts';
import { MAX_PER_DAY } from '../../src/feedback/record.ts';
import { ASYNC_TEXT_LENGTH } from '../../src/jobs/asynchronous.ts';
import { guide } from '../../src/operations/guide.ts';
import { MAX_NAME_LENGTH, MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH, SPEED } from '../../src/speech/limits.ts';
import { MIN_TOP_UP_CENTS } from '../../src/top-up/amount.ts';
import { depositResource, identifierExtension, speechResource } from '../../src/x402/challenge.ts';
import { REPLAY_WINDOW_SECONDS } from '../../src/x402/payment.ts';
import { PREPAID } from '../../src/x402/prepaid-terms.ts';

const { components, paths } = parse(await readFile(new URL('../../openapi.yaml', import.meta.url), 'utf8'));
const { schemas, parameters, headers } = components;
const { limits, agentGuide } = guide({
  serviceName: 'speechgate',
  baseUrl: 'https://speech.example',
  version: '2',
  speechTimeoutMs: 45_000,
});

/** How a challenge says that its resource is called. */
const calledBy = ({ extensions }: ReturnType<typeof speechResource>) =>
  // biome-ignore lint/suspicious/noExplicitAny: a JSON schema, held against another one.
  (extensions.bazaar as any).schema.properties.input.properties;

test('lengths of texts and names', async () => {
  const { text } = schemas.TtsRequest.properties;
  const inText = paths['/tts'].post.requestBody.content['text/plain'].schema;
  for (const { maxLength } of [text, inText, schemas.QuotedTtsRequest.properties.text]) {
    assert.equal(maxLength, MAX_TEXT_LENGTH);
  }
  assert.equal(parameters.Text.schema.maxLength, MAX_QUERY_TEXT_LENGTH);
  assert.equal(schemas.ModelId.maxLength, MAX_NAME_LENGTH);
  assert.equal(schemas.VoiceId.maxLength, MAX_NAME_LENGTH);
  assert.deepEqual([limits.maxTextLength, limits.getTtsMaxTextLength], [MAX_TEXT_LENGTH, MAX_QUERY_TEXT_LENGTH]);
});

test('what the contract says in words', async () => {
  assert.ok(schemas.TtsRequest.properties.text.description.includes(`1 to ${MAX_TEXT_LENGTH} characters`));
  assert.ok(parameters.Text.description.includes(`1 to ${MAX_QUERY_TEXT_LENGTH} characters`));
  const { description } = paths['/x402/tts'].post;
  assert.ok(description.replaceAll(/\s+/g, ' ').includes(`within ${REPLAY_WINDOW_SECONDS} seconds`));
  assert.ok(parameters.PrepaidExpiry.description.includes(`at most ${PREPAID.signatureTtlSeconds} from now`));
  const sig = paths['/tts/jobs/{jobId}/audio'].get.parameters.find(({ name }: { name?: string }) => name === 'sig');
  assert.ok(sig.description.includes(`1 to ${MAX_TOKEN_LENGTH} characters`));
});

test('speed', async () => {
  const { minimum, maximum } = schemas.Speed;
  assert.deepEqual({ minimum, maximum }, { minimum: SPEED.min, maximum: SPEED.max });
  assert.deepEqual(limits.speed, SPEED);
});

test('the challenges call the service as the contract does', async () => {
  const speech = calledBy(speechResource('https://speech.example', 'speechgate', 'POST')).body.properties;
  for (const [name, schema] of Object.entries({ model: schemas.ModelId, voice: schemas.VoiceId })) {
    const { minLength, maxLength } = schema;
    assert.deepEqual({ ...speech[name], minLength, maxLength }, speech[name], name);
  }
  assert.equal(speech.text.maxLength, MAX_TEXT_LENGTH);
  const { queryParams } = calledBy(speechResource('https://speech.example', 'speechgate', 'GET'));
  assert.equal(queryParams.properties.text.maxLength, MAX_QUERY_TEXT_LENGTH);
  const { type, minimum, maximum } = schemas.X402DepositRequest.properties.amountMicroUsd;
  const deposit = calledBy(depositResource('https://speech.example', 'speechgate')).body.properties;
  assert.deepEqual(deposit.amountMicroUsd, { type, minimum, maximum });
});

test('payment identifiers, nonces and deposits', async () => {
  const { minLength, maxLength } = headers.PaymentIdentifier.schema;
  const { id } = identifierExtension().schema.properties as { id: object };
  assert.deepEqual({ ...id, minLength, maxLength }, id);
  assert.ok(parameters.PaymentSignature.description.replaceAll(/\s+/g, ' ').includes(`${minLength} to ${maxLength} c`));
  assert.equal(parameters.PrepaidNonce.schema.pattern, `^[!-~]{1,${PREPAID.maxNonceLength}}$`);
  const { minimum, maximum } = schemas.X402DepositRequest.properties.amountMicroUsd;
  assert.deepEqual([PREPAID.minDepositMicroUsd, PREPAID.maxDepositMicroUsd], [minimum, maximum]);
});

test('the other limits of the guide', async () => {
  const { minDepositMicroUsd, maxDepositMicroUsd, maxTextLength, getTtsMaxTextLength, speed, characters, ...others } =
    limits;
  assert.deepEqual(others, {
    speechTimeoutSeconds: 45,
    asynchronousTextLength: ASYNC_TEXT_LENGTH,
    idempotencyKeyMaxLength: parameters.IdempotencyKey.schema.maxLength,
    minTopUpCents: MIN_TOP_UP_CENTS,
    depositConfirmations: PREPAID.depositConfirmations,
    depositTimeoutSeconds: PREPAID.depositTimeoutSeconds,
    prepaidSignatureLifetimeSeconds: PREPAID.signatureTtlSeconds,
    prepaidNonceMaxLength: PREPAID.maxNonceLength,
    feedbackMessageMaxLength: schemas.FeedbackMessage.maxLength,
    feedbackBodyMaxBytes: paths['/feedback'].post.requestBody['x-body-limit'],
    feedbackPerWalletIn24Hours: MAX_PER_DAY,
  });
  assert.ok(agentGuide.feedback[0]?.includes(`one of ${schemas.FeedbackCategory.enum.join(', ')}.`));
});
