import { MAX_NAME_LENGTH, MAX_QUERY_TEXT_LENGTH, MAX_TEXT_LENGTH, SPEED } from '../speech/limits.ts';
import { PREPAID } from './prepaid-terms.ts';

/** The extension of a challenge by which directories learn how the resource is called (x402 "bazaar" discovery). */
export interface DiscoveryExtension {
  readonly info: { readonly input: object; readonly output: object };
  readonly schema: object;
}

const TEXT = { type: 'string', minLength: 1 };
const NAME = { type: 'string', minLength: 1, maxLength: MAX_NAME_LENGTH };
const PARAMETERS = { model: NAME, voice: NAME };
const AUDIO = { type: 'audio/mpeg', format: 'binary' };
const AUDIO_FORM = { type: 'string', contentMediaType: 'audio/mpeg' };
const CREDITED = { balanceMicroUsd: { type: 'integer' }, creditedMicroUsd: { type: 'integer' } };
/** The request for speech that directories are shown. */
export const SPEECH_EXAMPLE = { text: 'Hello world' };
const JSON_BODY = { type: 'string', const: 'json' };

/** How `POST /x402/deposit` is called. */
export const depositDiscovery = (): DiscoveryExtension =>
  describe(
    { type: 'http', method: 'POST', bodyType: 'json', body: { amountMicroUsd: PREPAID.minDepositMicroUsd } },
    {
      bodyType: JSON_BODY,
      body: {
        type: 'object',
        required: ['amountMicroUsd'],
        properties: {
          amountMicroUsd: {
            type: 'integer',
            minimum: PREPAID.minDepositMicroUsd,
            maximum: PREPAID.maxDepositMicroUsd,
          },
        },
      },
    },
    { type: 'application/json' },
    { type: 'object', properties: CREDITED },
  );

/** How `/x402/tts` is called with one of its methods. */
export function speechDiscovery(method: 'GET' | 'POST'): DiscoveryExtension {
  return method === 'GET'
    ? describe(
        { type: 'http', method, queryParams: SPEECH_EXAMPLE },
        {
          queryParams: {
            type: 'object',
            required: ['text'],
            properties: {
              text: { ...TEXT, maxLength: MAX_QUERY_TEXT_LENGTH },
              ...PARAMETERS,
              speed: { type: 'string' },
            },
          },
        },
        AUDIO,
        AUDIO_FORM,
      )
    : describe(
        { type: 'http', method, bodyType: 'json', body: SPEECH_EXAMPLE },
        {
          bodyType: JSON_BODY,
          body: {
            type: 'object',
            required: ['text'],
            properties: {
              text: { ...TEXT, maxLength: MAX_TEXT_LENGTH },
              ...PARAMETERS,
              speed: { type: 'number', minimum: SPEED.min, maximum: SPEED.max },
            },
          },
        },
        AUDIO,
        AUDIO_FORM,
      );
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
          // Directories look for the form of what is answered at `example`, also where there is none in `info`.
          properties: { type: { type: 'string' }, format: { type: 'string' }, example: outputForm },
        },
      },
    },
  };
}
