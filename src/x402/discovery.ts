/** The extension of a challenge by which directories learn how the resource is called (x402 "bazaar" discovery). */
export interface DiscoveryExtension {
  readonly info: { readonly input: object; readonly output: object };
  readonly schema: object;
}

const TEXT = { type: 'string', minLength: 1 };
const PARAMETERS = {
  model: { type: 'string', minLength: 1, maxLength: 100 },
  voice: { type: 'string', minLength: 1, maxLength: 100 },
};
const OUTPUT = { type: 'audio/mpeg', format: 'binary' };
const EXAMPLE = { text: 'Hello world' };

/** How `/x402/tts` is called with one of its methods. */
export function discoveryOf(method: 'GET' | 'POST'): DiscoveryExtension {
  return method === 'GET'
    ? describe(
        { type: 'http', method, queryParams: EXAMPLE },
        {
          queryParams: {
            type: 'object',
            required: ['text'],
            properties: { text: { ...TEXT, maxLength: 1500 }, ...PARAMETERS, speed: { type: 'string' } },
          },
        },
      )
    : describe(
        { type: 'http', method, bodyType: 'json', body: EXAMPLE },
        {
          bodyType: { type: 'string', const: 'json' },
          body: {
            type: 'object',
            required: ['text'],
            properties: {
              text: { ...TEXT, maxLength: 4096 },
              ...PARAMETERS,
              speed: { type: 'number', minimum: 0.5, maximum: 2 },
            },
          },
        },
      );
}

function describe(
  input: { type: string; method: string; [member: string]: unknown },
  properties: Record<string, object>,
): DiscoveryExtension {
  return {
    info: { input, output: OUTPUT },
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
          properties: { type: { type: 'string' }, format: { type: 'string' } },
        },
      },
    },
  };
}
