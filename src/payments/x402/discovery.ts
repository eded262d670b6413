import { MAX_NAME_LENGTH, MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH, SPEED } from '../../config/speech-limits.ts';
import { PREPAID } from './prepaid-terms.ts';

interface DiscoveryExtension {
  readonly info: { readonly input: object; readonly output: object };
  readonly schema: object;
}

const NAME = { type: 'string', minLength: 1, maxLength: MAX_NAME_LENGTH };
const AUDIO = { type: 'audio/mpeg', format: 'binary' };
const AUDIO_FORM = { type: 'string', contentMediaType: 'audio/mpeg' };
const AMOUNT = { type: 'integer', minimum: PREPAID.minDepositMicroUsd, maximum: PREPAID.maxDepositMicroUsd };
const CREDITED = { balanceMicroUsd: { type: 'integer' }, creditedMicroUsd: { type: 'integer' } };
export const SPEECH_EXAMPLE = { text: 'Hello world' };
const JSON_BODY = { type: 'string', const: 'json' };

export const depositDiscovery = (): DiscoveryExtension =>
  describe(
    { type: 'http', method: 'POST', bodyType: 'json', body: { amountMicroUsd: PREPAID.minDepositMicroUsd } },
    {
      bodyType: JSON_BODY,
      body: { type: 'object', required: ['amountMicroUsd'], properties: { amountMicroUsd: AMOUNT } },
    },
    { type: 'application/json' },
    { type: 'object', properties: CREDITED },
  );

/** How directories of paid services list speech (R27). */
export function speechDiscovery(method: 'GET' | 'POST'): DiscoveryExtension {
  const form = (maxLength: number, speed: object) => ({
    type: 'object',
    required: ['text'],
    properties: { text: { type: 'string', minLength: 1, maxLength }, model: NAME, voice: NAME, speed },
  });
  if (method === 'GET') {
    const queryParams = form(MAX_QUERY_TEXT_LENGTH, { type: 'string' });
    return describe({ type: 'http', method, queryParams: SPEECH_EXAMPLE }, { queryParams }, AUDIO, AUDIO_FORM);
  }
  const input = { type: 'http', method, bodyType: 'json', body: SPEECH_EXAMPLE };
  const body = form(MAX_TEXT_LENGTH, { type: 'number', minimum: SPEED.min, maximum: SPEED.max });
  return describe(input, { bodyType: JSON_BODY, body }, AUDIO, AUDIO_FORM);
}

function describe(
  input: { type: string; method: string; [member: string]: unknown },
  properties: Record<string, object>,
  output: object,
  outputForm: object,
): DiscoveryExtension {
  return {
    info: { input, output },
    schema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      required: ['input'],
      properties: {
        input: {
          type: 'object',
          required: ['type', 'method', ...Object.keys(properties)],
          properties: {
            type: { type: 'string', const: 'http' },
            method: { type: 'string', enum: [input.method] },
            ...properties,
          },
          additionalProperties: false,
        },
        output: {
          type: 'object',
          required: ['type'],
          // Directories look for the response's schema at `example`, even if `info` has no example.
          properties: { type: { type: 'string' }, format: { type: 'string' }, example: outputForm },
        },
      },
    },
  };
}
