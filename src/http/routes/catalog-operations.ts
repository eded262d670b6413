import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { Model } from '../../config/catalog.ts';
import type { Config } from '../../config/config.ts';
import { SPEED } from '../../config/speech-limits.ts';
import type { CatalogOperations } from '../../contract/operations.ts';
import { findModel, unknownModel } from '../../speech/order.ts';
import { type ByteRange, StoreError } from '../../speech/store/audio-store.ts';
import { type KnownSamples, samplePath, type VoiceSamples } from '../../speech/voice-samples.ts';
import { AUDIO_STORE_UNAVAILABLE } from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import { failure } from '../structured-error.ts';
import { serveRange } from './stored-audio.ts';

const CACHE = { 'cache-control': 'public, max-age=3600' } as const;

export function catalogOperations(
  { catalog, baseUrl }: Pick<Config, 'catalog' | 'baseUrl'>,
  samples: VoiceSamples,
): CatalogOperations<OperationContext> {
  const voices = (model: Model, known: KnownSamples) =>
    model.voices.map((voice) => ({
      id: voice.id,
      provider: model.provider,
      voice: voice.slug,
      model: model.id,
      name: voice.name,
      ...(known.has(model, voice) && { sampleUrl: `${baseUrl}${samplePath(model, voice)}` }),
    }));
  const models = (known: KnownSamples) => ({
    success: true as const,
    defaultModel: catalog.defaultModel.id,
    total: catalog.models.length,
    models: catalog.models.map((model) => ({
      id: model.id,
      provider: model.provider,
      name: model.name,
      description: model.description,
      maxInputCharacters: model.maxInputCharacters,
      defaultVoice: model.defaultVoice.id,
      speed: { ...model.speed, default: SPEED.default },
      pricing: pricing(model),
      voices: voices(model, known),
      available: model.available,
    })),
  });
  const unknown = () => {
    const { code, message, details } = unknownModel(catalog);
    return failure(code, message, details);
  };
  const missing = () =>
    failure('NOT_FOUND', 'This voice has no sample. Ask the operator to make one.', { field: 'voice' });
  return {
    listModels: async () => ({ status: 200, body: models(await samples.known()) }),

    listVoices: async ({ query }) => {
      const model = findModel(catalog, query.model);
      if (!model) return unknown();
      return {
        status: 200,
        body: {
          success: true,
          model: model.id,
          total: model.voices.length,
          pricing: pricing(model),
          available: model.available,
          voices: voices(model, await samples.known()),
        },
      };
    },

    getVoiceSample: async ({ params, query, headers }, { log, method }) => {
      const model = findModel(catalog, query.model);
      if (!model) return unknown();
      const voice = model.voices.find(({ id }) => id === params.voice);
      if (!voice) {
        const message = `The model ${model.id} has no such voice. GET /tts/voices?model=${model.id} lists its voices.`;
        return failure('NOT_FOUND', message, { field: 'voice' });
      }
      try {
        const sample = await samples.open(model, voice);
        if (!sample) return missing();
        const { digest, size: sizeBytes, stream } = sample;
        const shared = { ...CACHE, etag: `"${digest}"` };
        if (headers['if-none-match']?.includes(digest)) {
          stream.destroy();
          return { status: 304, headers: shared };
        }
        const audio = await buffer(stream);
        const open = async ({ start, end }: ByteRange = { start: 0, end: sizeBytes - 1 }) => {
          return { stream: Readable.from(audio.subarray(start, end + 1), { objectMode: false }) };
        };
        return (await serveRange({ open, sizeBytes, shared }, headers, method)) ?? missing();
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        log.error(
          { err: error },
          'failed to read a voice sample from the audio store; no money was involved. Read err for the cause',
        );
        return AUDIO_STORE_UNAVAILABLE;
      }
    },
  };
}

/** Rates for display, as decimal quotients. Prices are never computed from them (R3). */
const pricing = (model: Model) => ({
  currency: 'USD' as const,
  model: model.id,
  billingUnit: 'character' as const,
  ratePerCharUsd: Number(model.ratePicoUsd) / 1e12,
  ratePerMillionCharsUsd: Number(model.ratePicoUsd) / 1e6,
  maxInputCharacters: model.maxInputCharacters,
});
